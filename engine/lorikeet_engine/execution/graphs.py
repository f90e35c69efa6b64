"""Decode steps that are computed once and replayed.

A decode step of so many rows is the same kernels over the same tensors every time; only the numbers in its buffer
change. There are two families: a step without adapters does not run their kernels at all. What a step may not be
replayed for (prompts, more rows than were asked for, a backend that cannot record) is left to the caller.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from lorikeet_engine.execution.staging import StepBuffer, StepSize
from lorikeet_engine.models.inputs import StepInputs
from lorikeet_engine.ops.interface import LoraRun, Ops, Recording
from lorikeet_engine.scheduling.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Graph:
    buffer: StepBuffer
    logits: torch.Tensor
    recording: Recording


class DecodeGraphs:
    """Recorded steps by (rows, with adapters or without).

    Attributes:
        sizes: numbers of rows that are recorded, ascending; a step is padded to the next one.
        table_width: blocks of the longest row.
    """

    def __init__(
        self,
        *,
        ops: Ops,
        forward: Callable[[StepInputs], torch.Tensor],
        sizes: Sequence[int],
        table_width: int,
        block_size: int,
        n_blocks: int,
    ) -> None:
        self._ops = ops
        self._forward = forward
        self._sizes = sorted(sizes)
        self._table_width = table_width
        self._block_size = block_size
        self._n_blocks = n_blocks
        self._graphs: dict[tuple[int, bool], Graph] = {}
        self._records = True

    def logits(self, plan: StepPlan, runs: tuple[LoraRun, ...]) -> torch.Tensor | None:
        """Logits [S, vocab] of the rows that sample, until the next step; None = compute it otherwise."""
        index = bisect_left(self._sizes, len(plan.rows))
        if not self._records or index == len(self._sizes) or any(len(row.token_ids) > 1 for row in plan.rows):
            return None
        key = (self._sizes[index], bool(runs))
        code = self._ops.encode_runs(runs, key[0]) if runs else ()
        graph = self._graphs.get(key)
        if graph is not None:
            graph.buffer.fill(plan, code, block_size=self._block_size, n_blocks=self._n_blocks)
            graph.recording.replay()
        else:
            graph = self._record(key, plan, runs, code)
            if graph is None:
                return None
        sampled = [index for index, row in enumerate(plan.rows) if row.samples]
        return graph.logits[: len(sampled)] if len(sampled) == len(plan.rows) else graph.logits[sampled]

    def _record(
        self, key: tuple[int, bool], plan: StepPlan, runs: tuple[LoraRun, ...], code: Sequence[int]
    ) -> Graph | None:
        n_rows, has_adapters = key
        code_size = self._ops.lora_code_size(n_rows) if has_adapters else 0
        buffer = StepBuffer(StepSize(n_rows, n_rows, n_rows, self._table_width, code_size))
        buffer.fill(plan, code, block_size=self._block_size, n_blocks=self._n_blocks)
        buffer.sample_all()
        inputs = buffer.inputs(plan, runs)
        recorded = self._ops.record(lambda: self._forward(inputs))
        if recorded is None:
            self._records = False
            return None
        graph = self._graphs[key] = Graph(buffer, *recorded)
        return graph
