"""From the plan's integers to the step's tensors.

All that a step is told lies in one buffer of int64 words, so that it reaches a device in one copy and a recorded step
finds it where it was. Checks what would corrupt memory silently: a row whose block table does not cover its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lorikeet_engine.models.inputs import StepInputs
from lorikeet_engine.ops.interface import AttentionBatch, LoraBatch, LoraRun
from lorikeet_engine.scheduling.plan import PlanRow, StepPlan

PADDING_SLOT = -1


@dataclass(frozen=True, slots=True)
class StepSize:
    """How much a step's buffer holds: tokens, rows, sampled tokens, blocks of a row, and words of adapters' runs."""

    n_tokens: int
    n_rows: int
    n_sampled: int
    table_width: int
    code_size: int

    @classmethod
    def of(cls, plan: StepPlan, block_size: int, code_size: int) -> StepSize:
        """Exactly what the plan needs."""
        return cls(
            n_tokens=sum(len(row.token_ids) for row in plan.rows),
            n_rows=len(plan.rows),
            n_sampled=sum(row.samples for row in plan.rows),
            table_width=max(-(-(row.start + len(row.token_ids)) // block_size) for row in plan.rows),
            code_size=code_size,
        )


class StepBuffer:
    """The words of one step: filled from plans through numpy, read by kernels as the tensors of `StepInputs`."""

    def __init__(self, size: StepSize) -> None:
        self.size = size
        n, rows = size.n_tokens, size.n_rows
        sizes = [n, n, n, n, size.n_sampled, rows, rows * size.table_width, size.code_size]
        self.words = torch.zeros(sum(sizes), dtype=torch.int64)
        self._parts = torch.split(self.words, sizes)
        tokens, positions, blocks, offsets, sampled, contexts, tables, code = (part.numpy() for part in self._parts)
        self._token_ids, self._positions, self._slot_blocks, self._slot_offsets = tokens, positions, blocks, offsets
        self._sampled, self._contexts, self._code = sampled, contexts, code
        self._tables = tables.reshape(rows, size.table_width)

    def fill(self, plan: StepPlan, code: Sequence[int], *, block_size: int, n_blocks: int) -> None:
        """Write the plan's rows in their order; what a kept buffer has beyond them becomes padding.

        Raises:
            ValueError: a row's blocks do not hold its tokens, or are not the pool's.
        """
        token = sampled = 0
        for index, row in enumerate(plan.rows):
            n_tokens = len(row.token_ids)
            end = row.start + n_tokens
            blocks = row.block_table[: -(-end // block_size)]
            _check(row, end, blocks, block_size, n_blocks)
            table = self._tables[index]
            table[: len(blocks)] = blocks
            table[len(blocks) :] = 0
            self._contexts[index] = end
            if n_tokens == 1:
                self._token_ids[token] = row.token_ids[0]
                self._positions[token] = row.start
                self._slot_blocks[token] = blocks[-1]
            else:
                self._token_ids[token : token + n_tokens] = row.token_ids
                positions = self._positions[token : token + n_tokens]
                positions[:] = range(row.start, end)
                self._slot_blocks[token : token + n_tokens] = table[positions // block_size]
            token += n_tokens
            if row.samples and sampled < self.size.n_sampled:
                self._sampled[sampled] = token - 1
                sampled += 1
        self._slot_offsets[:token] = self._positions[:token] % block_size
        self._token_ids[token:] = 0
        self._positions[token:] = 0
        self._slot_blocks[token:] = PADDING_SLOT
        self._contexts[len(plan.rows) :] = 0
        self._tables[len(plan.rows) :] = 0
        self._code[: len(code)] = code

    def sample_all(self) -> None:
        """Want the logits of every token, whatever the plans of this buffer say."""
        self._sampled[:] = range(self.size.n_tokens)

    def inputs(self, plan: StepPlan, runs: tuple[LoraRun, ...]) -> StepInputs:
        """The step as tensors over these words."""
        tokens, positions, blocks, offsets, sampled, contexts, tables, code = self._parts
        starts, context_lens = [0], []
        for row in plan.rows:
            starts.append(starts[-1] + len(row.token_ids))
            context_lens.append(row.start + len(row.token_ids))
        batch = AttentionBatch(
            n_decode=_n_decode(plan),
            query_starts=tuple(starts),
            context_lens=tuple(context_lens),
            contexts=contexts,
            block_tables=tables.view(self.size.n_rows, self.size.table_width),
            positions=positions,
            slot_blocks=blocks,
            slot_offsets=offsets,
        )
        return StepInputs(tokens, batch, LoraBatch(runs, code) if runs else None, sampled)


def _n_decode(plan: StepPlan) -> int:
    """Leading rows of one token: a prompt's chunk of one token is computed like a decode row."""
    for index, row in enumerate(plan.rows):
        if len(row.token_ids) != 1:
            return index
    return len(plan.rows)


def _check(row: PlanRow, end: int, used: Sequence[int], block_size: int, n_blocks: int) -> None:
    if not row.token_ids:
        raise ValueError(f"row {row.request_id}: no tokens")
    if len(used) * block_size < end:
        raise ValueError(f"row {row.request_id}: {len(used)} blocks of {block_size} do not hold {end} tokens")
    if not (min(used) > 0 and max(used) < n_blocks):
        raise ValueError(f"row {row.request_id}: a block outside 1..{n_blocks - 1}")
    if (row.adapter is None) != (row.extent < 0):
        raise ValueError(f"row {row.request_id}: adapter and extent disagree")
