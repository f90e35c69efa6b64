"""Carries out steps: copy blocks, stage, forward, sample. Decides nothing; the plan says it all.

Owns the tensors of one model replica: KV pages, adapter arena, and through the model the weights. A step is launched
and collected: where the device works beside the host, the host is free in between. What is handed to one of the
device's lanes is fenced against what the others still do to the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.errors import DeviceLost
from lorikeet_engine.execution.graphs import DecodeGraphs, PreparedStep
from lorikeet_engine.execution.kv_cache import KvCache
from lorikeet_engine.execution.placement import ON_HOST, Placement
from lorikeet_engine.execution.staging import StepBuffer, StepSize
from lorikeet_engine.execution.streams.fences import SpanFences
from lorikeet_engine.execution.streams.lanes import Lane, Mark
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.lora.batch import runs_of
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.llama import LlamaModel
from lorikeet_engine.models.weights import Weights
from lorikeet_engine.ops.interface import LoraRun, Ops
from lorikeet_engine.profiling.timeline import NOT_PROFILED, Timeline
from lorikeet_engine.scheduling.plan import BlockCopy, Phase, PlanRow, SamplingParams, StepPlan, StepResult
from lorikeet_engine.sizing.memory_budget import MemoryBudget

# Lengths of prompts between which kernels are chosen or compiled differently.
WARM_UP_TOKENS = (128, 256, 512)
GREEDY = SamplingParams()


class PackedImage(Protocol):
    """What the arena needs of an adapter image (`lorikeet_adapters.image.AdapterImage`)."""

    @property
    def extent(self) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A step in the device's hands until `end` is passed."""

    step_id: int
    sampling: list[PlanRow]
    started: float
    end: Mark


class ModelRunner:
    """One model on one device; not for use by two threads at once."""

    def __init__(
        self,
        *,
        config: EngineConfig,
        spec: ModelSpec,
        ops: Ops,
        weights: Weights,
        budget: MemoryBudget,
        placement: Placement = ON_HOST,
        timeline: Timeline = NOT_PROFILED,
    ) -> None:
        self.spec = spec
        self.dtype = weights.dtype
        self.budget = budget
        self.arena = LoraArena(
            table=spec.module_table(config.model_name),
            pool_bytes=config.adapter_pool_bytes,
            dtype=weights.dtype,
            device=placement.device,
        )
        self.kv = KvCache(
            spec,
            n_blocks=budget.n_blocks,
            block_size=config.block_size,
            dtype=weights.dtype,
            n_host_slots=budget.n_host_slots,
            device=placement.device,
            lanes=placement.lanes,
            mover=placement.mover,
        )
        self._ops = ops
        self._timeline = timeline
        self._lanes, self._feed = placement.lanes, placement.feed
        self._loads = SpanFences(placement.lanes)  # extents on their way into the arena
        self._choice = placement.token_choice(ops, budget.max_num_seqs)
        self._launched: LaunchedStep | None = None
        self._max_tokens = config.max_num_batched_tokens
        self._model = LlamaModel(
            spec=spec,
            ops=ops,
            weights=weights,
            arena=self.arena,
            max_positions=budget.max_model_len,
            block_size=config.block_size,
        )
        self._graphs = DecodeGraphs(
            ops=ops,
            forward=lambda step: self._model.forward(step, self.kv.layers),
            sizes=placement.recorded_rows(budget.max_num_seqs),
            table_width=-(-budget.max_model_len // config.block_size),
            block_size=config.block_size,
            n_blocks=budget.n_blocks,
            feed=placement.feed,
        )

    def execute(self, plan: StepPlan) -> StepResult:
        """Launch the step and wait for it."""
        self.launch(plan)
        return self.collect()

    def launch(self, plan: StepPlan) -> None:
        """Copy what the plan swaps and forks, compute every row, sample a token for each that asks for one.

        The loop has carried out the placements: their images are its own. A launched step is collected before the
        next one is launched.

        Raises:
            DeviceLost: here or by `collect`.
        """
        assert self._launched is None
        with lost_device():
            self._launched = self._launch(plan)

    def _launch(self, plan: StepPlan) -> LaunchedStep:
        started = time.perf_counter()
        with self._timeline.phase("copy blocks"):
            self._copy_blocks(plan)
        sampling = [row for row in plan.rows if row.samples]
        if plan.rows:
            with self._timeline.phase("stage"):
                step = self._prepare(plan)
            with self._timeline.phase("forward"):
                self._lanes.run(Lane.COMPUTE, partial(self._compute, step, sampling))
        return LaunchedStep(plan.step_id, sampling, started, self._lanes.mark(Lane.COMPUTE))

    def collect(self) -> StepResult:
        """The outcome of the launched step, once it is there."""
        called = time.perf_counter()
        step, self._launched = self._launched, None
        assert step is not None
        with self._timeline.phase("wait for the device"), lost_device():
            step.end.wait()
        with self._timeline.phase("sample"):
            sampled = self._choice.end(step.sampling) if step.sampling else {}
        ended = time.perf_counter()
        return StepResult(step.step_id, sampled, seconds=ended - step.started, waited_s=ended - called)

    def logits(self, plan: StepPlan) -> torch.Tensor:
        """Compute every row; float32 logits [S, vocab] of the rows that sample, in the plan's order."""
        step = self._prepare(plan)
        found: list[torch.Tensor] = []
        self._lanes.run(Lane.COMPUTE, lambda: found.append(_all_logits(step)))
        self._lanes.mark(Lane.COMPUTE).wait()
        return found[0]

    def warm_up(self) -> None:
        """Record all steps that are recorded and compile for all others, so that neither is done while requests wait.

        What is in the pages means nothing yet, so the steps may write there.
        """
        for step in self._graphs.every_step():
            self._lanes.run(Lane.COMPUTE, step)
        for plan in self._warm_up_plans():
            for runs in (None, ()):
                self._lanes.run(Lane.COMPUTE, partial(self._compute, self._prepare_once(plan, runs), list(plan.rows)))
        self._lanes.run(Lane.COMPUTE, self._choose_some)
        if self.kv.n_blocks > 2:
            self.kv.copy((BlockCopy(1, 2),))
        if self.kv.n_host_slots:
            self.kv.swap_out((BlockCopy(1, 0),))
            self.kv.swap_in((BlockCopy(0, 1),))
        self._lanes.mark(Lane.COMPUTE).wait()

    @torch.inference_mode()
    def _choose_some(self) -> None:
        """A token by every way of choosing, of one row among others."""
        logits = torch.zeros(2, self.spec.vocab, dtype=self.dtype, device=self.arena.storage.device)
        row = _warm_up_row(Phase.DECODE, 1, (1,), SamplingParams(temperature=1.0, top_k=2, top_p=0.5))
        self._choice.begin(logits, (1,), [row])

    def _warm_up_plans(self) -> Iterator[StepPlan]:
        """Prompts of a few lengths, alone and beside a row that decodes."""
        block, most = self.kv.block_size, self._max_tokens - 1
        lengths = sorted({n for n in (2, block + 1, *WARM_UP_TOKENS, most) if 2 <= n <= most})
        for length in lengths:
            n_tokens = max(1, min(length, (self.kv.n_blocks - 2) * block, self.budget.max_model_len))
            first = min(2, self.kv.n_blocks - 1)
            blocks = tuple(range(first, first + -(-n_tokens // block)))
            prompt = _warm_up_row(Phase.PREFILL, n_tokens, blocks)
            yield StepPlan(0, (prompt,))
            if self.budget.max_num_seqs > 1 and self.kv.n_blocks > 2:
                yield StepPlan(0, (_warm_up_row(Phase.DECODE, 1, (1,)), prompt))

    def _prepare(self, plan: StepPlan) -> PreparedStep:
        """Send the step's numbers, behind whatever its rows have to wait for."""
        for base in {row.extent for row in plan.rows if row.extent >= 0}:
            self._loads.pass_on(Lane.COMPUTE, base, 1)
        self.kv.before_use(block for row in plan.rows for block in row.block_table)
        runs = runs_of(plan.rows, self.arena)
        recorded = self._graphs.prepare(plan, runs)
        if recorded is not None:
            return recorded
        return self._prepare_once(plan, runs or None)

    def _prepare_once(self, plan: StepPlan, runs: tuple[LoraRun, ...] | None) -> PreparedStep:
        """A step that is not kept."""
        code = () if runs is None else self._ops.encode_runs(runs, plan.n_tokens)
        buffer = StepBuffer(StepSize.of(plan, self.kv.block_size, len(code)), self._feed)
        buffer.fill(plan, code, block_size=self.kv.block_size, n_blocks=self.kv.n_blocks)
        inputs = buffer.inputs(plan, runs)
        forward = partial(self._model.forward, inputs, self.kv.layers)
        return PreparedStep(partial(self._ops.run, forward), range(buffer.size.n_sampled))

    @torch.inference_mode()
    def _compute(self, step: PreparedStep, sampling: list[PlanRow]) -> None:
        logits = step.compute()
        if sampling:
            self._choice.begin(logits, step.logit_rows, sampling)

    def _copy_blocks(self, plan: StepPlan) -> None:
        """In the plan's order."""
        if plan.swap_outs:
            self.kv.swap_out(plan.swap_outs)
        if plan.swap_ins:
            self.kv.swap_in(plan.swap_ins)
        if plan.copies:
            self.kv.copy(plan.copies)

    def write_extent(self, base_grain: int, image: PackedImage) -> float:
        """Put an adapter's bytes into the arena, once what was handed over before has left those grains.

        On a lane of its own, so that only a step that uses it waits; the scheduler places an adapter in the plan that
        first uses it, so that step does. Returns the seconds that the host spent.
        """
        started = time.perf_counter()
        self._lanes.wait(Lane.LOAD, self._lanes.mark(Lane.COMPUTE))
        self.arena.write(base_grain, image.extent, run=partial(self._lanes.run, Lane.LOAD))
        self._loads.put(base_grain, image.extent.numel() // GRAIN, self._lanes.mark(Lane.LOAD))
        return time.perf_counter() - started

    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> float:
        """Relocate one adapter; source and target may overlap. Returns the seconds that the host spent."""
        started = time.perf_counter()
        for grain in (source_grain, target_grain):
            self._loads.pass_on(Lane.COMPUTE, grain, n_grains)
        self.arena.move(source_grain, target_grain, n_grains, run=partial(self._lanes.run, Lane.COMPUTE))
        return time.perf_counter() - started


def _warm_up_row(phase: Phase, n_tokens: int, blocks: tuple[int, ...], sampling: SamplingParams = GREEDY) -> PlanRow:
    return PlanRow("", phase, (0,) * n_tokens, 0, blocks, None, -1, True, sampling, 0)


@contextmanager
def lost_device() -> Iterator[None]:
    """An error of the device itself stays with it: every later call has it, too."""
    try:
        yield
    except torch.AcceleratorError as error:
        raise DeviceLost(str(error).partition("\n")[0]) from error


@torch.inference_mode()
def _all_logits(step: PreparedStep) -> torch.Tensor:
    return step.compute()[list(step.logit_rows)].float()
