"""Decode steps that are computed once and replayed.

A decode step of so many rows is the same kernels over the same tensors every time; only the numbers in its buffer
change. There are two families: a step without adapters does not run their kernels at all. What a step may not be
replayed for (prompts, more rows than were asked for, a backend that cannot record) is left to the caller.

`prepare` sends a step's numbers, its answer computes it: the first belongs to the host, the second to the device.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from lorikeet_engine.execution.staging import IN_PLACE, StepBuffer, StepSize, WordFeed
from lorikeet_engine.models.inputs import StepInputs
from lorikeet_engine.ops.interface import LoraRun, Ops, Recording
from lorikeet_engine.scheduling.plan import StepPlan

NOTHING = StepPlan(0, ())


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step whose numbers are on their way.

    Attributes:
        compute: computes it and returns logits, which are overwritten by the next step.
        logit_rows: which of their rows belong to the plan's rows that sample, in the plan's order.
    """

    compute: Callable[[], torch.Tensor]
    logit_rows: Sequence[int]


@dataclass(slots=True)
class Graph:
    """`recording` and `logits` are there once it was computed."""

    buffer: StepBuffer
    inputs: StepInputs
    logits: torch.Tensor | None = None
    recording: Recording | None = None


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
        feed: WordFeed = IN_PLACE,
    ) -> None:
        self._ops = ops
        self._forward = forward
        self._sizes = sorted(sizes)
        self._table_width = table_width
        self._block_size = block_size
        self._n_blocks = n_blocks
        self._feed = feed
        self._graphs: dict[tuple[int, bool], Graph] = {}
        self._records = True

    def prepare(self, plan: StepPlan, runs: tuple[LoraRun, ...]) -> PreparedStep | None:
        """The step, ready to be computed; None = compute it otherwise."""
        index = bisect_left(self._sizes, len(plan.rows))
        if not self._records or index == len(self._sizes) or any(len(row.token_ids) > 1 for row in plan.rows):
            return None
        key = (self._sizes[index], bool(runs))
        return PreparedStep(
            self._prepare(key, plan, runs or None), [index for index, row in enumerate(plan.rows) if row.samples]
        )

    def every_step(self) -> Iterator[Callable[[], torch.Tensor]]:
        """What computes each step that there is, with rows that only pad: the largest first, since memory is shared."""
        for n_rows in reversed(self._sizes):
            for runs in (None, ()):
                yield self._prepare((n_rows, runs is not None), NOTHING, runs)

    def _prepare(
        self, key: tuple[int, bool], plan: StepPlan, runs: tuple[LoraRun, ...] | None
    ) -> Callable[[], torch.Tensor]:
        n_rows, has_adapters = key
        code = () if runs is None else self._ops.encode_runs(runs, n_rows)
        graph = self._graphs.get(key)
        if graph is None:
            code_size = self._ops.lora_code_size(n_rows) if has_adapters else 0
            size = StepSize(n_rows, n_rows, n_rows, self._table_width, code_size)
            buffer = StepBuffer(size, self._feed, samples_all=True)
            graph = Graph(buffer, buffer.inputs(plan, runs))
        graph.buffer.fill(plan, code, block_size=self._block_size, n_blocks=self._n_blocks)
        # Not before: a plan that is refused leaves no step behind, whose adapters the next plan would get.
        self._graphs[key] = graph
        return partial(self._compute, graph)

    @torch.inference_mode()
    def _compute(self, graph: Graph) -> torch.Tensor:
        if graph.recording is not None and graph.logits is not None:
            graph.recording.replay()
            return graph.logits
        recorded = self._ops.record(lambda: self._forward(graph.inputs))
        if recorded is None:
            self._records = False
            return self._forward(graph.inputs)
        graph.logits, graph.recording = recorded
        return graph.logits
