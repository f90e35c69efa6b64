"""How long one decode step takes on this CPU: torch's ops against the native ones, in one process and in turn.

    python benchmarks/cpu_step.py MODEL_DIR [--quick] [--json FILE] [--dtype float32] [--context 256] [--threads N]

A step is what the engine's runner does: staging, the forward pass (recorded where the backend can) and a greedy choice,
with rows behind `--context` tokens and adapters of random numbers on all linears. The two backends take turns, step by
step, so that other work on the machine meets both; the figures are medians. With one thread it is processor time that
counts, which others do not lengthen; with more, every barrier waits for the thread that was sent off its core, and only
a quiet machine gives figures. The floor of a step is the longer of two times: the bytes it must read over the read
bandwidth, and its FLOPs over the rate of a matrix product of 256 rows, both measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import torch
from extents import random_extent
from figures import Figure, arguments, at_most, present

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.modules import MODULES
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import ModelCost, StepShape, adapter_bytes, kv_block_bytes, lora_row_flops, step_work
from lorikeet_engine.execution.machine.device import set_threads
from lorikeet_engine.execution.machine.host_memory import available_memory
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.model_spec import ModelSpec, load_model_spec
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.native.library import load_library
from lorikeet_engine.ops.native.ops import NativeCpuOps
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams, StepPlan
from lorikeet_engine.sizing.memory_budget import plan_memory

BLOCK = 16
READ_BYTES = 512 << 20
RANKS = (8, 16, 32, 64, 8, 16, 32, 64)


@dataclass(frozen=True)
class Scenario:
    """Decode rows, and the adapter of each; rows that name the same one share it.

    Attributes:
        adapters: indices into RANKS, by row; none = the base model.
        over_floor: how many times its floor a step may take.
        over_base: how many times as long as the base model's step on as many rows.
    """

    name: str
    n_rows: int
    adapters: tuple[int, ...] = ()
    over_floor: float = 0.0
    over_base: float = 0.0


SCENARIOS = (
    Scenario("1 row", 1, over_floor=1.5),
    Scenario("1 row, adapter r32", 1, (2,)),
    Scenario("8 rows", 8, over_floor=1.6),
    Scenario("16 rows", 16, over_floor=1.8),
    Scenario("8 rows on one adapter r32", 8, (2,) * 8, over_base=1.2),
    Scenario("8 rows on 8 adapters r8..64", 8, tuple(range(8)), over_base=1.6),
)
OVER_ADAPTERS = 2.0  # what adapters may add, in times of reading them


@dataclass(frozen=True)
class Peaks:
    """What this machine does, in bytes/s and FLOP/s."""

    bandwidth: float
    flops: float


@dataclass(frozen=True)
class Bench:
    """A model on both backends, each with pages and adapters of its own."""

    spec: ModelSpec
    runners: dict[str, ModelRunner]
    bases: tuple[int, ...]

    def plan(self, scenario: Scenario, context: int) -> StepPlan:
        per_row = -(-(context + 1) // BLOCK)
        rows = []
        for row in range(scenario.n_rows):
            adapter = scenario.adapters[row] if scenario.adapters else None
            rows.append(
                PlanRow(
                    request_id=f"r{row}",
                    phase=Phase.DECODE,
                    token_ids=(100 + row,),
                    start=context,
                    block_table=tuple(1 + row * per_row + i for i in range(per_row)),
                    adapter=None if adapter is None else AdapterKey("bench", str(adapter)),
                    extent=-1 if adapter is None else self.bases[adapter],
                    samples=True,
                    sampling=SamplingParams(),
                    n_generated=0,
                )
            )
        return StepPlan(0, tuple(rows))

    def step(self, backend: str, plan: StepPlan) -> float:
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        started = clock()
        self.runners[backend].execute(plan)
        return clock() - started


def build(model_dir: Path, dtype: torch.dtype, context: int) -> Bench:
    spec = load_model_spec(model_dir)
    extents = [random_extent(spec.module_table("bench"), rank, MODULES, dtype) for rank in RANKS]
    n_blocks = 1 + max(s.n_rows for s in SCENARIOS) * -(-(context + 1) // BLOCK)
    config = EngineConfig(
        model_dir=model_dir,
        model_name="bench",
        store_url=str(model_dir),
        endpoint="ipc://bench",
        block_size=BLOCK,
        kv_cache_bytes=n_blocks * kv_block_bytes(spec, block_size=BLOCK, itemsize=dtype.itemsize),
        adapter_pool_bytes=sum(extent.nbytes for extent in extents) + 4096,
        max_model_len=context + 1,
    )
    backends: dict[str, Ops] = {"torch": CpuOps(), "native": NativeCpuOps(load_library())}
    runners: dict[str, ModelRunner] = {}
    bases: tuple[int, ...] = ()
    for name, ops in backends.items():
        weights = load_weights(model_dir, spec, dtype=dtype, ops=ops)
        budget = plan_memory(
            config, spec, itemsize=dtype.itemsize, weights_bytes=weights.nbytes, available_bytes=available_memory()
        )
        runners[name] = ModelRunner(config=config, spec=spec, ops=ops, weights=weights, budget=budget)
        bases = fill(runners[name], extents)
    return Bench(spec, runners, bases)


def fill(runner: ModelRunner, extents: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Put numbers where requests and adapters would; returns the adapters' places."""
    for layer in runner.kv.layers:
        layer.k[1:].normal_()
        layer.v[1:].normal_()
    bases, free = [], 0
    for extent in extents:
        runner.arena.write(free, extent)
        bases.append(free)
        free += extent.numel() // GRAIN
    return tuple(bases)


def read_bandwidth(n_rounds: int) -> float:
    """Bytes a second that summing a large tensor reads, all threads together."""
    data = torch.ones(READ_BYTES // 4)
    return READ_BYTES / min(_seconds(lambda: data.sum().item()) for _ in range(n_rounds))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def gemm_rate(dtype: torch.dtype, n_rounds: int) -> float:
    """FLOPs a second of a product that keeps the cores busy: 256 rows, in torch."""
    x, weight = torch.randn(256, 1536).to(dtype), torch.randn(1536, 1536).to(dtype)
    return 2 * x.numel() * 1536 / min(_seconds(lambda: torch.nn.functional.linear(x, weight)) for _ in range(n_rounds))


def floor_seconds(bench: Bench, scenario: Scenario, context: int, peaks: Peaks, itemsize: int) -> float:
    shape = StepShape()
    sizes = {adapter: adapter_bytes(bench.spec, RANKS[adapter], itemsize=itemsize) for adapter in scenario.adapters}
    for row in range(scenario.n_rows):
        shape.add_decode(context)
        if scenario.adapters:
            shape.lora_flops += lora_row_flops(sizes[scenario.adapters[row]], itemsize=itemsize)
    shape.lora_bytes = sum(sizes.values())
    work = step_work(ModelCost.of(bench.spec, itemsize=itemsize), shape)
    return max(work.read_bytes / peaks.bandwidth, work.flops / peaks.flops)


def measure(bench: Bench, scenario: Scenario, context: int, n_steps: int) -> dict[str, list[float]]:
    plan = bench.plan(scenario, context)
    times: dict[str, list[float]] = {name: [] for name in bench.runners}
    for step in range(n_steps + 3):
        for name in bench.runners:
            seconds = bench.step(name, plan)
            if step >= 3:
                times[name].append(seconds)
    return times


def figures_of(scenario: Scenario, times: dict[str, list[float]], floor: float) -> list[Figure]:
    """Of one scenario by itself."""
    name, figures = scenario.name, []
    medians = {backend: median(values) for backend, values in times.items()}
    for backend, values in times.items():
        figures.append(Figure(f"{name}: {backend}", 1e3 * medians[backend], "ms"))
        spread = quantiles(values, n=10)
        figures.append(Figure(f"{name}: {backend}, p90 over p10", spread[-1] / spread[0], ""))
    figures.append(Figure(f"{name}: torch over native", medians["torch"] / medians["native"], ""))
    figures.append(Figure(f"{name}: floor", 1e3 * floor, "ms"))
    ratio, bound = min(medians.values()) / floor, scenario.over_floor
    figures.append(
        at_most(f"{name}: over floor", ratio, "", bound) if bound else Figure(f"{name}: over floor", ratio, "")
    )
    return figures


def overhead_of(scenario: Scenario, seconds: float, base: float, peaks: Peaks, sizes: Sequence[int]) -> list[Figure]:
    """What adapters add to the step of the base model on as many rows."""
    reading = sum(sizes[adapter] for adapter in set(scenario.adapters)) / peaks.bandwidth
    figures = [at_most(f"{scenario.name}: over base", seconds / base, "", scenario.over_base)]
    if len(set(scenario.adapters)) > 1:
        added = (seconds - base) / reading
        figures.append(at_most(f"{scenario.name}: added, over reading the adapters", added, "", OVER_ADAPTERS))
    return figures


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--context", type=int, default=256, help="tokens before each row")
    parser.add_argument("--threads", type=int, default=0, help="0 = as the engine chooses")
    options = parser.parse_args()
    set_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    bench = build(options.model_dir, dtype, options.context)
    n_steps = 15 if options.quick else 60
    n_rounds = 5 if options.quick else 15
    peaks = Peaks(read_bandwidth(n_rounds), gemm_rate(dtype, 20 * n_rounds))
    figures = [
        Figure("threads", torch.get_num_threads(), ""),
        Figure("read bandwidth", peaks.bandwidth / 1e9, "GB/s"),
        Figure("matrix product", peaks.flops / 1e9, "GFLOP/s"),
    ]
    sizes = [adapter_bytes(bench.spec, rank, itemsize=dtype.itemsize) for rank in RANKS]
    base: dict[int, float] = {}
    for scenario in SCENARIOS:
        times = measure(bench, scenario, options.context, n_steps)
        floor = floor_seconds(bench, scenario, options.context, peaks, dtype.itemsize)
        figures += figures_of(scenario, times, floor)
        best = min(median(values) for values in times.values())
        if not scenario.adapters:
            base[scenario.n_rows] = best
        elif scenario.over_base:
            figures += overhead_of(scenario, best, base[scenario.n_rows], peaks, sizes)
    present(f"A decode step in {options.dtype} behind {options.context} tokens", figures, options.json)


if __name__ == "__main__":
    main()
