"""Whole steps on Llama-3-8B's shapes with random weights, and what each part of the GPU's runner gains.

    python benchmarks/engine_gpu.py [--quick] [--json FILE]

Before and after of what was built for speed: recorded steps, adapters on a lane of their own, swaps on another, steps
left with the device while the host plans. A gain below 2 % is a reason to take that part out again. Targets are those
of the design for an H200. Without a GPU everything runs once on toy shapes, interpreted, and nothing is judged.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
import triton
from extents import random_extent
from figures import Figure, arguments, at_most, present
from gpu_loop import loop_seconds
from gpu_models import LARGE, TOY, Setting, fill_arena, gpu_setting, placed
from gpu_timing import DEVICE, IS_GPU, guarded, measured_rates, wall_seconds

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.modules import MODULES
from lorikeet_engine.cost import ModelCost, StepShape, roofline_seconds
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import BlockCopy, Phase, PlanRow, SamplingParams, StepPlan

SPEC = LARGE if IS_GPU else TOY
DTYPE = torch.bfloat16 if IS_GPU else torch.float32
BLOCK = 16
ROWS, CONTEXT, PREFILL = (64, 1024, 2048) if IS_GPU else (4, 20, 12)
RANK, MAX_RANK = 16, 64
N_ADAPTERS = 64 if IS_GPU else 4
N_SWAPPED = 64 if IS_GPU else 2
ROUNDS = 31 if IS_GPU else 1
Q_AND_V = ("self_attn.q_proj", "self_attn.v_proj")
MS = 1e3


@dataclass(frozen=True)
class Image:
    extent: torch.Tensor


@dataclass(frozen=True)
class Bench:
    setting: Setting
    extent: torch.Tensor
    rounds: int

    def runner(self, *, recorded: bool = True, one_lane: bool = False) -> ModelRunner:
        """Pages for all rows of a step twice over, since swaps need blocks that no row has."""
        per_row = -(-(max(CONTEXT + 1, PREFILL)) // BLOCK)
        spec = self.setting.spec
        block_bytes = 2 * spec.n_layers * spec.n_kv_heads * spec.head_dim * BLOCK * DTYPE.itemsize
        return self.setting.runner(
            placed(DEVICE, recorded=recorded, one_lane=one_lane),
            max_num_seqs=ROWS,
            max_num_batched_tokens=PREFILL + ROWS + BLOCK,
            max_model_len=max(CONTEXT, PREFILL) + BLOCK,
            block_size=BLOCK,
            kv_cache_bytes=(2 + 2 * N_SWAPPED + ROWS * per_row) * block_bytes,
            swap_space=2 * N_SWAPPED * block_bytes,
            adapter_pool_bytes=(N_ADAPTERS + 2) * self.extent.nbytes,
            max_rank=MAX_RANK,
        )

    def step_seconds(self, runner: ModelRunner, plan: StepPlan, before: Callable[[], object] = lambda: None) -> float:
        """Median seconds of a step, staging and sampled tokens included; `before` is done before each."""

        def once() -> None:
            before()
            runner.execute(plan)

        wall_seconds(once, rounds=3 if IS_GPU else 1)
        return median(wall_seconds(once, rounds=self.rounds))


def row(index: int, n_tokens: int, start: int, extent: int) -> PlanRow:
    per_row = -(-(start + n_tokens) // BLOCK)
    return PlanRow(
        request_id=f"r{index}",
        phase=Phase.DECODE if n_tokens == 1 else Phase.PREFILL,
        token_ids=tuple((7 * index + place) % 100 for place in range(n_tokens)),
        start=start,
        block_table=tuple(1 + index * per_row + block for block in range(per_row)),
        adapter=AdapterKey("bench", str(extent)) if extent >= 0 else None,
        extent=extent,
        samples=True,
        sampling=SamplingParams(),
        n_generated=0,
    )


def decode_plan(bases: Sequence[int] = (), n_rows: int = ROWS) -> StepPlan:
    """Rows behind `CONTEXT` tokens, in even runs over the adapters."""
    owners = [bases[index * len(bases) // n_rows] if bases else -1 for index in range(n_rows)]
    return StepPlan(0, tuple(row(index, 1, CONTEXT, owner) for index, owner in enumerate(owners)))


def prefill_plan(bases: Sequence[int] = ()) -> StepPlan:
    n_rows = max(1, len(bases))
    return StepPlan(
        0,
        tuple(row(index, PREFILL // n_rows, 0, bases[index] if bases else -1) for index in range(n_rows)),
    )


def compared(name: str, before: float, after: float) -> Iterator[Figure]:
    yield Figure(f"{name}: before", before * MS, "ms")
    yield Figure(f"{name}: after", after * MS, "ms")
    yield Figure(f"{name}: gain", 100 * (1 - after / before), "%")


def overhead(name: str, plain: float, loaded: float, bound: float) -> Figure:
    value = 100 * (loaded / plain - 1)
    return at_most(name, value, "%", bound) if IS_GPU else Figure(name, value, "%", f"<= {bound:g}")


def graph_figures(bench: Bench) -> Iterator[Figure]:
    """Recorded steps against the same steps launch by launch."""
    runners = {recorded: bench.runner(recorded=recorded) for recorded in (False, True)}
    for n_rows in dict.fromkeys((1, ROWS)):
        seconds = [bench.step_seconds(runners[recorded], decode_plan(n_rows=n_rows)) for recorded in (False, True)]
        yield from compared(f"recorded steps, {n_rows} rows", *seconds)
    bases = fill_arena(runners[True].arena, bench.extent, 1)
    fill_arena(runners[False].arena, bench.extent, 1)
    seconds = [bench.step_seconds(runners[recorded], decode_plan(bases)) for recorded in (False, True)]
    yield from compared(f"recorded steps, {ROWS} rows on one adapter", *seconds)


def overhead_figures(bench: Bench) -> Iterator[Figure]:
    """What adapters add to a step, and how far the step without them is from its floor."""
    runner = bench.runner()
    plain = bench.step_seconds(runner, decode_plan())
    shape = StepShape()
    for _ in range(ROWS):
        shape.add_decode(CONTEXT)
    profile = measured_rates(quick=True).profile()
    floor = roofline_seconds(ModelCost.of(SPEC, itemsize=DTYPE.itemsize), profile, shape)
    yield Figure(f"decode step, {ROWS} rows at {CONTEXT}", plain * MS, "ms")
    yield Figure(f"decode step, {ROWS} rows at {CONTEXT}: floor over time", floor / plain, "")
    bases = fill_arena(runner.arena, bench.extent, N_ADAPTERS)
    for n, bound in ((N_ADAPTERS, 30), (N_ADAPTERS // 8 or 2, 11), (1, 8)):
        seconds = bench.step_seconds(runner, decode_plan(bases[:n]))
        yield overhead(f"decode step, {n} adapters r{RANK} all-7 over none", plain, seconds, bound)
    prefill = bench.step_seconds(runner, prefill_plan())
    yield Figure(f"prefill of {PREFILL}", prefill * MS, "ms")
    for n in (1, 8 if IS_GPU else 2):
        seconds = bench.step_seconds(runner, prefill_plan(bases[:n]))
        yield overhead(f"prefill of {PREFILL}, {n} adapters r{RANK} all-7 over none", prefill, seconds, 14)
    narrow = random_extent(SPEC.module_table("bench"), RANK, Q_AND_V, DTYPE)
    seconds = bench.step_seconds(runner, decode_plan(fill_arena(runner.arena, narrow, N_ADAPTERS)))
    yield overhead(f"decode step, {N_ADAPTERS} adapters r{RANK} q,v over none", plain, seconds, 8)


def lane_figures(bench: Bench) -> Iterator[Figure]:
    """Steps during which an adapter arrives that they do not use, and blocks are swapped that they do not read.

    What the lane for adapters could gain at most: the scheduler places an adapter in the plan that first uses it.
    """
    free = N_ADAPTERS * (bench.extent.numel() // GRAIN)
    first = 1 + ROWS * -(-(CONTEXT + 1) // BLOCK)
    outs = tuple(BlockCopy(first + index, index) for index in range(N_SWAPPED))
    ins = tuple(BlockCopy(index, first + N_SWAPPED + index) for index in range(N_SWAPPED))
    loads, swaps = [], []
    for one_lane in (True, False):
        runner = bench.runner(one_lane=one_lane)
        plan = decode_plan()
        loads.append(
            bench.step_seconds(runner, plan, lambda runner=runner: runner.write_extent(free, Image(bench.extent)))
        )
        runner.execute(StepPlan(0, (), swap_outs=outs))
        swapping = StepPlan(0, plan.rows, swap_outs=outs, swap_ins=ins)
        swaps.append(bench.step_seconds(runner, swapping))
    yield from compared("a lane for arriving adapters", *loads)
    yield from compared("a lane for swaps", *swaps)


def overlap_figures(bench: Bench) -> Iterator[Figure]:
    """The loop with scheduler and answers' delivery, with steps waited for and with steps left with the device."""
    n_tokens = 200 if IS_GPU else 3
    runner = bench.runner()
    runner.warm_up()
    seconds = [
        loop_seconds(runner, SPEC, n_requests=ROWS, n_prompt=16, n_tokens=n_tokens, overlaps=overlaps)
        for overlaps in (False, True)
    ]
    yield from compared("steps left with the device", *seconds)


def compile_figures(bench: Bench) -> Iterator[Figure]:
    """Kernels compiled after the warm-up, by steps of many sizes."""
    if not IS_GPU:
        return
    runner = bench.runner()
    runner.warm_up()
    bases = fill_arena(runner.arena, bench.extent, 4)
    for plan in (prefill_plan(), prefill_plan(bases)):
        runner.execute(plan)
    compiled: list[object] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **about: compiled.append(about) and None
    for n_rows in range(1, ROWS + 1, 3):
        for owners in ((), bases[:1], bases):
            runner.execute(decode_plan(owners, n_rows))
            prompt = row(ROWS - 1, 5 + 31 * n_rows, 0, owners[0] if owners else -1)
            runner.execute(StepPlan(0, (*decode_plan(owners, n_rows).rows, prompt)))
    triton.knobs.runtime.jit_post_compile_hook = None
    yield at_most("kernels compiled while serving", len(compiled), "", 0)


PARTS: tuple[Callable[[Bench], Iterator[Figure]], ...] = (
    graph_figures,
    overhead_figures,
    lane_figures,
    overlap_figures,
    compile_figures,
)


@torch.inference_mode()
def measure(*, quick: bool) -> list[Figure]:
    """Every figure of this file."""
    setting = gpu_setting(SPEC, DTYPE, DEVICE, max_tokens=PREFILL + ROWS + BLOCK, max_rank=MAX_RANK)
    extent = random_extent(SPEC.module_table("bench"), RANK, MODULES, DTYPE)
    bench = Bench(setting, extent, 7 if quick and IS_GPU else ROUNDS)
    figures: list[Figure] = []
    for part in PARTS:
        figures += guarded(part.__name__.replace("_", " "), part(bench))
        gc.collect()
        if IS_GPU:
            torch.cuda.empty_cache()
    return figures


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    name = torch.cuda.get_device_name() if IS_GPU else "no GPU: interpreted, times mean nothing"
    present(f"Steps on Llama-3-8B's shapes ({name})", measure(quick=options.quick), options.json)


if __name__ == "__main__":
    main()
