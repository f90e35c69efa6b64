"""From the plan's integers to the step's tensors.

Checks what would corrupt memory silently: a row whose block table does not cover its tokens.
"""

from __future__ import annotations

import torch

from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.lora.batch import runs_of
from lorikeet_engine.models.inputs import StepInputs
from lorikeet_engine.ops.interface import AttentionBatch
from lorikeet_engine.scheduling.plan import PlanRow, StepPlan


def stage(plan: StepPlan, *, block_size: int, n_blocks: int, arena: LoraArena) -> StepInputs:
    """Build the inputs of one step, rows in the plan's order."""
    tokens: list[int] = []
    positions: list[int] = []
    slot_blocks: list[int] = []
    starts, contexts, sampled = [0], [], []
    for row in plan.rows:
        end = row.start + len(row.token_ids)
        _check(row, end, block_size, n_blocks)
        tokens += row.token_ids
        positions += range(row.start, end)
        slot_blocks += (row.block_table[position // block_size] for position in range(row.start, end))
        starts.append(len(tokens))
        contexts.append(end)
        if row.samples:
            sampled.append(len(tokens) - 1)
    position = torch.tensor(positions)
    batch = AttentionBatch(
        n_decode=_n_decode(plan),
        query_starts=tuple(starts),
        context_lens=tuple(contexts),
        block_tables=_tables(plan, contexts, block_size),
        slot_blocks=torch.tensor(slot_blocks),
        slot_offsets=position % block_size,
    )
    return StepInputs(
        token_ids=torch.tensor(tokens),
        positions=position,
        batch=batch,
        runs=runs_of(plan.rows, arena),
        sampled_tokens=torch.tensor(sampled, dtype=torch.int64),
    )


def _n_decode(plan: StepPlan) -> int:
    """Leading rows of one token: a prompt's chunk of one token is computed like a decode row."""
    for index, row in enumerate(plan.rows):
        if len(row.token_ids) != 1:
            return index
    return len(plan.rows)


def _tables(plan: StepPlan, contexts: list[int], block_size: int) -> torch.Tensor:
    """int64 [B, most blocks in use]; entries that a row does not use are block 0, whatever the plan reserved."""
    used = [-(-context // block_size) for context in contexts]
    width = max(used)
    rows = [(*row.block_table[:n], *(0,) * (width - n)) for row, n in zip(plan.rows, used, strict=True)]
    return torch.tensor(rows)


def _check(row: PlanRow, end: int, block_size: int, n_blocks: int) -> None:
    if not row.token_ids:
        raise ValueError(f"row {row.request_id}: no tokens")
    used = row.block_table[: -(-end // block_size)]
    if len(used) * block_size < end:
        raise ValueError(f"row {row.request_id}: {len(used)} blocks of {block_size} do not hold {end} tokens")
    if not all(0 < block < n_blocks for block in used):
        raise ValueError(f"row {row.request_id}: a block outside 1..{n_blocks - 1}")
    if (row.adapter is None) != (row.extent < 0):
        raise ValueError(f"row {row.request_id}: adapter and extent disagree")
