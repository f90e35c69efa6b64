"""Building a runner and driving it by hand, without scheduler or loop: what the device's tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lorikeet_engine.config import EngineConfig
from lorikeet_engine.execution.machine.device import resolve_dtype
from lorikeet_engine.execution.placement import ON_HOST, Placement
from lorikeet_engine.execution.profiled_ops import profiled
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.served_linears import ServedLinears
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.profiling.step_timeline import StepTimeline
from lorikeet_engine.profiling.timeline import NOT_PROFILED
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams, StepPlan
from lorikeet_engine.sizing.memory_budget import plan_memory

BASE = -1
GREEDY = SamplingParams()


def open_runner(
    model_dir: Path,
    *,
    dtype: str = "float32",
    n_blocks: int = 64,
    block_size: int = 8,
    max_model_len: int = 256,
    adapter_pool_bytes: int = 1 << 20,
    n_host_slots: int = 0,
    max_num_seqs: int = 0,
    max_num_batched_tokens: int = 0,
    ops: Ops | None = None,
    timeline: StepTimeline | None = None,
    placement: Placement = ON_HOST,
) -> ModelRunner:
    """A runner over a local model directory with a pool of exactly `n_blocks` blocks and `n_host_slots` to swap to.

    With a `timeline` it is profiled.
    """
    spec, torch_dtype, ops = load_model_spec(model_dir), resolve_dtype(dtype), ops or CpuOps()
    token_bytes = 2 * spec.n_layers * spec.n_kv_heads * spec.head_dim * torch_dtype.itemsize
    config = EngineConfig(
        model_dir=model_dir,
        model_name="tiny",
        store_url=str(model_dir),
        endpoint="ipc:///nowhere",
        dtype=dtype,
        block_size=block_size,
        max_model_len=max_model_len,
        kv_cache_bytes=n_blocks * block_size * token_bytes,
        adapter_pool_bytes=adapter_pool_bytes,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        swap_space=n_host_slots * block_size * token_bytes,
    )
    weights = load_weights(model_dir, spec, dtype=torch_dtype, ops=ops)
    budget = plan_memory(
        config, spec, itemsize=torch_dtype.itemsize, weights_bytes=weights.nbytes, available_bytes=64 << 30
    )
    return ModelRunner(
        config=config,
        spec=spec,
        ops=profiled(ops, weights, timeline) if timeline else ops,
        weights=weights,
        budget=budget,
        placement=placement,
        timeline=timeline or NOT_PROFILED,
    )


def open_linears(
    model_dir: Path, ops: Ops, *, dtype: torch.dtype = torch.float32, packed_from: torch.dtype | None = None
) -> ServedLinears:
    """What DoRA of this model is packed with; it holds weights of its own, packed by the same ops."""
    spec = load_model_spec(model_dir)
    weights = load_weights(model_dir, spec, dtype=dtype, ops=ops, packed_from=packed_from)
    return ServedLinears(ops=ops, weights=weights, table=spec.module_table("tiny"))


@dataclass
class Driven:
    """One request driven by hand: its tokens, what of them is computed, its blocks."""

    name: str
    tokens: list[int]
    blocks: tuple[int, ...]
    extent: int = BASE
    sampling: SamplingParams = GREEDY
    computed: int = 0
    generated: list[int] = field(default_factory=list)

    def row(self, n_tokens: int | None = None) -> PlanRow:
        """The next `n_tokens` tokens not computed yet, all that are left when None; moves on."""
        tokens = [*self.tokens, *self.generated]
        end = len(tokens) if n_tokens is None else min(len(tokens), self.computed + n_tokens)
        row = PlanRow(
            request_id=self.name,
            phase=Phase.DECODE if self.generated else Phase.PREFILL,
            token_ids=tuple(tokens[self.computed : end]),
            start=self.computed,
            block_table=self.blocks,
            adapter=None if self.extent == BASE else AdapterKey("tenant", f"{self.extent:064x}"),
            extent=self.extent,
            samples=end == len(tokens),
            sampling=self.sampling,
            n_generated=len(self.generated),
        )
        self.computed = end
        return row


def plan_of(rows: Sequence[PlanRow], step_id: int = 1) -> StepPlan:
    """Rows in the order the scheduler would give them."""
    ordered = sorted(rows, key=lambda row: (row.phase, row.extent == BASE, row.extent))
    return StepPlan(step_id, tuple(ordered))


def generate(runner: ModelRunner, sequences: Sequence[Driven], n_tokens: int) -> dict[str, list[int]]:
    """Prefill whole prompts in one step, then decode all together."""
    for _ in range(n_tokens):
        result = runner.execute(plan_of([sequence.row() for sequence in sequences]))
        for sequence in sequences:
            sequence.generated.append(result.sampled[sequence.name])
    return {sequence.name: sequence.generated for sequence in sequences}


def random_ids(n: int, *, vocab: int, seed: int) -> list[int]:
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(seed)).tolist()
