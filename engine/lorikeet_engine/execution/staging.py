"""From the plan's integers to the step's tensors.

All that a step is told lies in one buffer of int64 words, so that it reaches a device in one copy and a recorded step
finds it where it was. Checks what would corrupt memory silently: a row whose block table does not cover its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
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


class WordFeed(Protocol):
    """How a step's words get from where the host writes them to where kernels read them.

    `in_place`: they are the same words.
    """

    in_place: bool

    def words(self, n: int) -> torch.Tensor:
        """Room for n words where kernels read."""
        ...

    def host(self, words: torch.Tensor) -> torch.Tensor:
        """Where the host writes what those words are to be; nothing reads it until it is sent."""
        ...

    def send(self, host: torch.Tensor, words: torch.Tensor) -> None:
        """Bring it there, behind the steps before this one."""
        ...


class HostFeed:
    """Kernels read what the host has written, where it has."""

    in_place = True

    def words(self, n: int) -> torch.Tensor:
        return torch.zeros(n, dtype=torch.int64)

    def host(self, words: torch.Tensor) -> torch.Tensor:
        return words

    def send(self, host: torch.Tensor, words: torch.Tensor) -> None:
        del host, words


IN_PLACE = HostFeed()


class _Parts(NamedTuple):
    """The words by what they say, as numpy arrays over them."""

    token_ids: np.ndarray
    positions: np.ndarray
    slot_blocks: np.ndarray
    slot_offsets: np.ndarray
    sampled: np.ndarray
    contexts: np.ndarray
    tables: np.ndarray
    code: np.ndarray


class StepBuffer:
    """The words of one step: filled from plans through numpy, read by kernels as the tensors of `StepInputs`.

    Attributes:
        samples_all: the logits of every token are wanted, whatever the plans say.
    """

    def __init__(self, size: StepSize, feed: WordFeed = IN_PLACE, *, samples_all: bool = False) -> None:
        self.size = size
        self.samples_all = samples_all
        n, rows = size.n_tokens, size.n_rows
        self._sizes = [n, n, n, n, size.n_sampled, rows, rows * size.table_width, size.code_size]
        self._feed = feed
        self.words = feed.words(sum(self._sizes))
        self._tensors = torch.split(self.words, self._sizes)
        self._kept = self._parts_of(self.words) if feed.in_place else None

    def _parts_of(self, host: torch.Tensor) -> _Parts:
        tokens, positions, blocks, offsets, sampled, contexts, tables, code = (
            part.numpy() for part in torch.split(host, self._sizes)
        )
        tables = tables.reshape(self.size.n_rows, self.size.table_width)
        return _Parts(tokens, positions, blocks, offsets, sampled, contexts, tables, code)

    def fill(self, plan: StepPlan, code: Sequence[int], *, block_size: int, n_blocks: int) -> None:
        """Write the plan's rows in their order, what a kept buffer has beyond them as padding, and send it all.

        Raises:
            ValueError: a row's blocks do not hold its tokens, or are not the pool's.
        """
        host = self._feed.host(self.words)
        parts = self._kept or self._parts_of(host)
        token = sampled = 0
        for index, row in enumerate(plan.rows):
            n_tokens = len(row.token_ids)
            _fill_row(parts, row, index, token, block_size, n_blocks)
            token += n_tokens
            if row.samples and not self.samples_all:
                parts.sampled[sampled] = token - 1
                sampled += 1
        if self.samples_all:
            parts.sampled[:] = range(self.size.n_tokens)
        parts.slot_offsets[:token] = parts.positions[:token] % block_size
        parts.slot_offsets[token:] = 0
        parts.token_ids[token:] = 0
        parts.positions[token:] = 0
        parts.slot_blocks[token:] = PADDING_SLOT
        parts.contexts[len(plan.rows) :] = 0
        parts.tables[len(plan.rows) :] = 0
        parts.code[: len(code)] = code
        self._feed.send(host, self.words)

    def inputs(self, plan: StepPlan, runs: tuple[LoraRun, ...] | None) -> StepInputs:
        """The step as tensors over these words; rows beyond the plan's have one token and nothing to attend to.

        Without `runs` no kernel for adapters runs.
        """
        tokens, positions, blocks, offsets, sampled, contexts, tables, code = self._tensors
        starts, context_lens = [0], []
        for row in plan.rows:
            starts.append(starts[-1] + len(row.token_ids))
            context_lens.append(row.start + len(row.token_ids))
        n_padding = self.size.n_rows - len(plan.rows)
        n_decode = _n_decode(plan)
        if n_padding:
            starts += range(starts[-1] + 1, starts[-1] + 1 + n_padding)
            context_lens += [0] * n_padding
            n_decode += n_padding if n_decode == len(plan.rows) else 0
        batch = AttentionBatch(
            n_decode=n_decode,
            query_starts=tuple(starts),
            context_lens=tuple(context_lens),
            contexts=contexts,
            block_tables=tables.view(self.size.n_rows, self.size.table_width),
            positions=positions,
            slot_blocks=blocks,
            slot_offsets=offsets,
        )
        return StepInputs(tokens, batch, None if runs is None else LoraBatch(runs, code), sampled)


def _fill_row(parts: _Parts, row: PlanRow, index: int, token: int, block_size: int, n_blocks: int) -> None:
    """One row, its tokens from number `token` on."""
    n_tokens = len(row.token_ids)
    end = row.start + n_tokens
    blocks = row.block_table[: -(-end // block_size)]
    _check(row, end, blocks, block_size, n_blocks)
    table = parts.tables[index]
    table[: len(blocks)] = blocks
    table[len(blocks) :] = 0
    parts.contexts[index] = end
    if n_tokens == 1:
        parts.token_ids[token] = row.token_ids[0]
        parts.positions[token] = row.start
        parts.slot_blocks[token] = blocks[-1]
    else:
        parts.token_ids[token : token + n_tokens] = row.token_ids
        positions = parts.positions[token : token + n_tokens]
        positions[:] = range(row.start, end)
        parts.slot_blocks[token : token + n_tokens] = table[positions // block_size]


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
