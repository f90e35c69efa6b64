"""Carries out steps: copy blocks, stage, forward, sample. Decides nothing; the plan says it all.

Owns the tensors of one model replica: KV pages, adapter arena, and through the model the weights.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

import torch

from lorikeet_engine.config import EngineConfig
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.execution.cgroup import cpu_quota
from lorikeet_engine.execution.graphs import DecodeGraphs
from lorikeet_engine.execution.kv_cache import KvCache
from lorikeet_engine.execution.memory_budget import MemoryBudget
from lorikeet_engine.execution.sampler import sample
from lorikeet_engine.execution.staging import StepBuffer, StepSize
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.lora.batch import runs_of
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.models.llama import LlamaModel
from lorikeet_engine.models.weights import Weights
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.profiling.timeline import NOT_PROFILED, Timeline
from lorikeet_engine.scheduling.plan import StepPlan, StepResult

MANY_CORES = 1 << 16


class PackedImage(Protocol):
    """What the arena needs of an adapter image (`lorikeet_adapters.image.AdapterImage`)."""

    @property
    def extent(self) -> torch.Tensor: ...


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
        timeline: Timeline = NOT_PROFILED,
    ) -> None:
        self.spec = spec
        self.dtype = weights.dtype
        self.budget = budget
        self.arena = LoraArena(
            table=spec.module_table(config.model_name),
            pool_bytes=config.adapter_pool_bytes,
            dtype=weights.dtype,
            device="cpu",
        )
        self.kv = KvCache(
            spec,
            n_blocks=budget.n_blocks,
            block_size=config.block_size,
            dtype=weights.dtype,
            n_host_slots=budget.n_host_slots,
        )
        self._ops = ops
        self._timeline = timeline
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
            sizes=range(1, config.max_num_seqs + 1),
            table_width=-(-budget.max_model_len // config.block_size),
            block_size=config.block_size,
            n_blocks=budget.n_blocks,
        )

    def execute(self, plan: StepPlan) -> StepResult:
        """Copy what the plan swaps and forks, compute every row, sample a token for each that asks for one.

        The loop has carried out the placements: their images are its own.
        """
        started = time.perf_counter()
        with self._timeline.phase("copy blocks"):
            self._copy_blocks(plan)
        sampled: dict[str, int] = {}
        if plan.rows:
            with torch.inference_mode():
                logits = self._compute(plan)
                with self._timeline.phase("sample"):
                    sampled = sample(logits, [row for row in plan.rows if row.samples], self._ops)
        return StepResult(plan.step_id, sampled, time.perf_counter() - started)

    @torch.inference_mode()
    def logits(self, plan: StepPlan) -> torch.Tensor:
        """Compute every row; float32 logits [S, vocab] of the rows that sample, in the plan's order."""
        return self._compute(plan).float()

    def _compute(self, plan: StepPlan) -> torch.Tensor:
        """Logits in the model's dtype; they are overwritten by the next step."""
        runs = runs_of(plan.rows, self.arena)
        logits = self._graphs.logits(plan, runs)
        if logits is None:
            with self._timeline.phase("stage"):
                n_tokens = sum(len(row.token_ids) for row in plan.rows)
                code = self._ops.encode_runs(runs, n_tokens) if runs else ()
                buffer = StepBuffer(StepSize.of(plan, self.kv.block_size, len(code)))
                buffer.fill(plan, code, block_size=self.kv.block_size, n_blocks=self.kv.n_blocks)
                inputs = buffer.inputs(plan, runs)
            with self._timeline.phase("forward"):
                logits = self._model.forward(inputs, self.kv.layers)
        return logits

    def _copy_blocks(self, plan: StepPlan) -> None:
        """In the plan's order."""
        if plan.swap_outs:
            self.kv.swap_out(plan.swap_outs)
        if plan.swap_ins:
            self.kv.swap_in(plan.swap_ins)
        if plan.copies:
            self.kv.copy(plan.copies)

    def write_extent(self, base_grain: int, image: PackedImage) -> float:
        """Put an adapter's bytes into the arena; no step may be using those grains. Returns the seconds it took."""
        started = time.perf_counter()
        self.arena.write(base_grain, image.extent)
        return time.perf_counter() - started

    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> float:
        """Relocate one adapter; source and target may overlap. Returns the seconds it took."""
        started = time.perf_counter()
        self.arena.move(source_grain, target_grain, n_grains)
        return time.perf_counter() - started


def resolve_dtype(name: str) -> torch.dtype:
    """'auto' is bf16 where the CPU computes in it; elsewhere bf16 is emulated and slower than float32."""
    if name == "auto":
        has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        name = "bfloat16" if has_bf16 else "float32"
    if name == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise UnsupportedModel("dtype bfloat16: this CPU cannot multiply in it; set float32, or auto")
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]


def set_threads(n_threads: int) -> int:
    """Size torch's pool; 0 leaves one core to the rest of the machine, since a busy core stalls every barrier."""
    cores = min(len(os.sched_getaffinity(0)), int(cpu_quota() or MANY_CORES))
    chosen = n_threads or max(1, cores - 1)
    torch.set_num_threads(chosen)
    return chosen
