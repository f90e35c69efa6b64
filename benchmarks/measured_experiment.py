"""The published experiment's shape on a real engine: five prompt lengths, answers of 256 tokens, no prefix cache.

Eight clients in a closed loop on this process's own engine, on a CPU, and the same lengths one request at a time. FLOPs
and bytes are counted once more from the steps' plans. With one thread it is processor time that counts, as in
`cpu_step.py`, which other work on the machine does not lengthen but for what it takes of caches and memory. `--docs`
writes the tables into docs/experiments.md, and draws its pictures.

    python benchmarks/measured_experiment.py MODEL_DIR [--quick] [--json FILE] [--docs]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from figures import Figure, arguments, at_least, near, print_table, write_json
from pages import Table, write_tables
from pictures import draw_pictures

from lorikeet_engine.execution.machine.device import set_threads
from lorikeet_engine.experiments.lines import implied_bandwidth, itl_line, kv_line, peak_tokens
from lorikeet_engine.experiments.measures import Outcome, Peaks, peaks_of
from lorikeet_engine.experiments.record import Machine, PointRecord, RunRecord
from lorikeet_engine.experiments.recount import Recount
from lorikeet_engine.experiments.scenarios.named import EMBEDDED, Size, lengths
from lorikeet_engine.experiments.scenarios.setup import Scenario, Setup
from lorikeet_engine.experiments.sweep import run_sweep
from lorikeet_engine.experiments.targets.on_engine import EngineTarget, copy_bandwidth, engine_target
from lorikeet_engine.experiments.targets.on_simulator import simulator_target

DOCS = Path(__file__).parents[1] / "docs" / "experiments.md"
PICTURES = ("points.png", "device.png")
SIMULATED = ("smollm2-135m", "cpu2")
READ_BYTES, READ_ROUNDS = 512 << 20, 8
ALONE_OUTPUT, ALONE_REQUESTS = 32, 3
QUICK = replace(EMBEDDED, lengths=(64, 128, 256), output=32, requests_per_client=1)


@dataclass(frozen=True, slots=True)
class Measured:
    """A point, and its counters over a recount from the plans of its steps."""

    outcome: Outcome
    flops_ratio: float
    bytes_ratio: float


def measure(target: EngineTarget, name: str, setups: Sequence[Setup]) -> tuple[RunRecord, list[Measured]]:
    measured: list[Measured] = []
    recount = _recount_into(target)

    def told(point: PointRecord) -> None:
        nonlocal recount
        outcome = Outcome(point)
        work = outcome.window.whole.work
        measured.append(Measured(outcome, work.flops / recount.flops, work.read_bytes / recount.read_bytes))
        recount = _recount_into(target)

    scenario = Scenario(name=name, axis="prompt_tokens", model=target.machine.model, device="cpu", setups=setups)
    return run_sweep(scenario, target, told), measured


def _recount_into(target: EngineTarget) -> Recount:
    recount = Recount(target.model.spec, target.model.weights.dtype.itemsize)
    target.on_plan = recount.add
    return recount


def length_of(outcome: Outcome) -> int:
    return int(outcome.setup["prompt_tokens"])


def bandwidths(target: EngineTarget) -> list[Figure]:
    """Of this machine, with as many threads as the engine has; the best of two looks, one before the runs."""
    copied = max(target.machine.copy_bandwidth or 0.0, copy_bandwidth("cpu", target.clock))
    return [
        Figure("bandwidth of copying memory, read and written", copied / 1e9, "GB/s"),
        Figure("bandwidth of reading memory", read_bandwidth(target.clock) / 1e9, "GB/s"),
    ]


def read_bandwidth(clock: Callable[[], float]) -> float:
    """Bytes a second that summing a large tensor reads."""
    data = torch.ones(READ_BYTES // 4)
    seconds = []
    for _ in range(READ_ROUNDS):
        started = clock()
        data.sum().item()
        seconds.append(clock() - started)
    return READ_BYTES / min(seconds)


def figures_of(crowd: Sequence[Measured], alone: Sequence[Measured], machine: Machine) -> list[Figure]:
    outcomes, singles = [m.outcome for m in crowd], [m.outcome for m in alone]
    clients = int(outcomes[0].setup["concurrency"])
    kv, itl = kv_line(outcomes), itl_line(outcomes)
    read_s = implied_bandwidth(itl, clients, machine.kv_bytes_per_token or 0)
    both = [*crowd, *alone]
    short, long, single = outcomes[0], outcomes[-1], singles[-1]
    at = f"{length_of(long)} tokens"
    return [
        near("peak KV use, slope over prompt length", kv.slope, "tokens/token", clients, 0.01),
        at_least("peak KV use, R²", kv.r_squared, "", 0.9999),
        near("FLOP counter over recount, worst point", _worst([m.flops_ratio for m in both]), "", 1.0, 0.001),
        near("byte counter over recount, worst point", _worst([m.bytes_ratio for m in both]), "", 1.0, 0.001),
        Figure("ITL p50, intercept", 1000 * itl.intercept, "ms"),
        Figure("ITL p50, slope", 1000 * itl.slope, "ms/token"),
        Figure("ITL p50, R²", itl.r_squared, ""),
        Figure("bandwidth that the slope implies", read_s / 1e9, "GB/s"),
        Figure(f"prefill of {at} alone, p50 TTFT", 1000 * single.ttft_at(0.5), "ms"),
        Figure(f"prefill of {at} at C={clients}, p50 TTFT", 1000 * long.ttft_at(0.5), "ms"),
        Figure("prefill interference", long.ttft_at(0.5) / single.ttft_at(0.5), "x"),
        Figure(f"queueing at C={clients}, {at}, mean", 1000 * long.mean_queue, "ms"),
        Figure("total tokens/s, longest over shortest", long.total_s / short.total_s, "x"),
        Figure("output tokens/s, shortest over longest", short.output_s / long.output_s, "x"),
        *_phases(long, machine),
    ]


def _worst(ratios: Sequence[float]) -> float:
    return max(ratios, key=lambda ratio: abs(ratio - 1))


def _phases(long: Outcome, machine: Machine) -> list[Figure]:
    """The two machines in one, at the longest prompts."""
    peaks, phases = peaks_of(machine), long.window.phases
    assert peaks
    prefill, decode = phases["prefill"], phases["decode"]
    return [
        Figure("pure prefill steps", prefill.flops_s / 1e9, "GFLOP/s"),
        Figure("pure decode steps", decode.flops_s / 1e9, "GFLOP/s"),
        Figure("prefill over decode", prefill.flops_s / decode.flops_s, "x"),
        Figure("MFU of prefill", 100 * prefill.mfu(peaks), "%"),
        Figure("MBU of decode", 100 * decode.mbu(peaks), "%"),
        Figure("decode intensity", decode.intensity, "FLOP/byte"),
    ]


def length_table(title: str, points: Sequence[Outcome], simulated: Sequence[Outcome], peaks: Peaks) -> Table:
    columns = (
        "L", "TTFT p50", "simulated", "TTFT p99", "ITL p50", "simulated", "ITL p90", "output/s", "tokens/s",
        "KV peak, tokens", "MFU", "MBU",
    )  # fmt: skip
    rows = [
        (
            str(length_of(o)),
            f"{1000 * o.ttft_at(0.5):.0f} ms",
            f"{1000 * s.ttft_at(0.5):.0f} ms",
            f"{o.ttft_at(0.99):.2f} s",
            f"{1000 * o.gap_at(0.5):.1f} ms",
            f"{1000 * s.gap_at(0.5):.1f} ms",
            f"{1000 * o.gap_at(0.9):.1f} ms",
            f"{o.output_s:.0f}",
            f"{o.total_s:.0f}",
            f"{peak_tokens(o):,.0f}",
            f"{100 * o.window.whole.mfu(peaks):.1f} %",
            f"{100 * o.window.whole.mbu(peaks):.1f} %",
        )
        for o, s in zip(points, simulated, strict=True)
    ]
    return Table(title, columns, rows)


def phase_table(points: Sequence[Outcome]) -> Table:
    """What each kind of step was for: prefill and decode are two machines."""
    rows = [
        (
            str(length_of(outcome)),
            kind,
            str(phase.steps),
            f"{100 * phase.seconds / outcome.point.seconds:.0f} %",
            f"{phase.flops_s / 1e9:.1f}",
            f"{phase.read_s / 1e9:.2f}",
            f"{phase.intensity:.1f}",
        )
        for outcome in points
        for kind, phase in outcome.window.phases.items()
    ]
    columns = ("L", "steps", "number", "of the time", "GFLOP/s", "GB/s read", "FLOP/byte")
    return Table("Kinds of steps at C=8", columns, rows)


def run(target: EngineTarget, size: Size) -> tuple[RunRecord, list[Figure], list[Table]]:
    crowded, briefly = lengths(size), replace(size, output=ALONE_OUTPUT, requests_per_client=ALONE_REQUESTS)
    single = [briefly.setup(length, clients=1) for length in size.lengths]
    _, alone = measure(target, "alone", single)
    record, crowd = measure(target, "lengths", crowded)
    simulator = simulator_target(*SIMULATED)
    simulated = [[Outcome(simulator.run(setup)) for setup in setups] for setups in (crowded, single)]
    peaks = peaks_of(target.machine)
    assert peaks
    of_crowd, of_alone = [m.outcome for m in crowd], [m.outcome for m in alone]
    figures = [*figures_of(crowd, alone, target.machine), *bandwidths(target)]
    return record, figures, [
        length_table(f"Lengths at C={size.clients}", of_crowd, simulated[0], peaks),
        length_table("Lengths at C=1", of_alone, simulated[1], peaks),
        phase_table(of_crowd),
    ]  # fmt: skip


def figure_table(figures: Sequence[Figure]) -> Table:
    return Table("Measured", ("figure", "value", "target", "holds"), [figure.cells() for figure in figures])


def main() -> None:
    parser = arguments("The published experiment's shape on a real engine.")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--docs", action="store_true", help="write docs/experiments.md's tables and pictures")
    options = parser.parse_args()
    clock = time.thread_time if set_threads(0) == 1 else time.perf_counter
    target = engine_target(options.model_dir, "cpu", clock)
    record, figures, tables = run(target, QUICK if options.quick else EMBEDDED)
    for table in [*reversed(tables), figure_table(figures)]:
        print_table(table.title, table.columns, table.rows)
    write_json(figures, options.json)
    if options.docs:
        write_tables([figure_table(figures), *tables], DOCS)
        draw_pictures(record, PICTURES, "measured")


if __name__ == "__main__":
    main()
