"""A measured experiment against its simulation: one RTX 4090, Qwen2.5-7B, five prompt lengths, 16 clients.

The device's constants were fitted to two of the lengths and to one prompt alone (`lorikeet_engine.simulation.fit`);
whatever else stands in the table was predicted. `--docs` writes the tables into docs/simulation.md.

    python benchmarks/published_experiment.py [--json FILE] [--quick] [--docs]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from figures import Figure, arguments, print_table, write_json
from pages import Table, write_tables

from lorikeet_engine.cost import ModelCost, StepShape, intensity, step_work, theoretical_concurrency
from lorikeet_engine.experiments.lines import itl_line, kv_line
from lorikeet_engine.experiments.measures import Outcome, Peaks, peaks_of
from lorikeet_engine.experiments.record import Reading
from lorikeet_engine.experiments.scenarios.named import (
    BLOCK,
    PUBLISHED,
    SHARES,
    budgets,
    concurrency,
    lengths,
    lengths_alone,
    pools,
    prefixes,
)
from lorikeet_engine.experiments.scenarios.setup import Setup
from lorikeet_engine.experiments.targets.on_simulator import SimulatorTarget, simulator_target
from lorikeet_engine.simulation.shipped import load_model

DOCS = Path(__file__).parents[1] / "docs" / "simulation.md"
LENGTHS, OUTPUT = PUBLISHED.lengths, PUBLISHED.output
RUNNING = (2, 5, 7, 10, 12, 15, 16)


@dataclass(frozen=True, slots=True)
class Row:
    """A published value beside the simulated one. `bound` is the tolerated relative error, None = none was promised."""

    name: str
    published: float
    simulated: float
    unit: str = ""
    bound: float | None = None
    at_least: bool = False

    @property
    def error(self) -> float:
        return self.simulated / self.published - 1

    @property
    def holds(self) -> bool | None:
        if self.bound is None:
            return None
        return self.simulated >= self.published if self.at_least else abs(self.error) <= self.bound

    def cells(self) -> tuple[str, ...]:
        holds = "" if self.holds is None else "yes" if self.holds else "NO"
        bound = "" if self.bound is None else "at least" if self.at_least else f"± {100 * self.bound:g} %"
        unit = f" {self.unit}" if self.unit else ""
        digits = 6 if "R²" in self.name else 4
        values = (f"{self.published:.{digits}g}{unit}", f"{self.simulated:.{digits}g}{unit}")
        error = "" if self.at_least else f"{100 * self.error:+.1f} %"
        return self.name, *values, error, bound, holds

    def figure(self) -> Figure:
        target = "" if self.bound is None else f"{self.published:g} {self.cells()[4]}"
        return Figure(self.name, self.simulated, self.unit, target, self.holds)


def published_rows(sweep: Sequence[Outcome], alone: Outcome, peaks: Peaks) -> list[Row]:
    """The length sweep, and what the sweep at one length says about interference."""
    short, long = sweep[0], sweep[-1]
    middle = next(outcome for outcome in sweep if length_of(outcome) == length_of(alone))
    itl, usage = itl_line(sweep), kv_line(sweep)
    rows = [
        Row("ITL p50, intercept", 16.36, 1000 * itl.intercept, "ms", 0.08),
        Row("ITL p50, slope", 0.00099, 1000 * itl.slope, "ms/token", 0.08),
        Row("ITL p50, R²", 0.99998, itl.r_squared, "", 0.0001),
        Row("peak KV use, slope x pool", 16.0, usage.slope, "tokens/token", 0.01),
        Row("peak KV use, R²", 0.9999, usage.r_squared, "", 0.0, at_least=True),
        Row("peak KV use at L=4096", 79.8, peak_percent(long), "%", 0.01),
    ]
    ends = ((short, 14.2, 81.6, 23.5, 822.5), (long, 53.2, 43.3, 87.9, 436.9))
    for outcome, mfu, mbu, tflops, gigabytes in ends:
        at, whole = f"at L={length_of(outcome)}", outcome.window.whole
        rows += [
            Row(f"MFU {at}", mfu, 100 * whole.mfu(peaks), "%", 0.1),
            Row(f"MBU {at}", mbu, 100 * whole.mbu(peaks), "%", 0.1),
            Row(f"FLOPs {at}", tflops, whole.flops_s / 1e12, "TFLOP/s", 0.1),
            Row(f"bytes read {at}", gigabytes, whole.read_s / 1e9, "GB/s", 0.1),
        ]
    of_short, of_long = short.window, long.window
    prefill, decode = of_long.phases["prefill"], of_long.phases["decode"]
    return [
        *rows,
        Row("iterations at L=256", 56.3, of_short.whole.steps / of_short.seconds, "1/s", 0.1),
        Row("prefill of 1024 alone, p50 TTFT", 92.2, 1000 * alone.ttft_at(0.5), "ms", 0.01),
        Row("prefill of 1024 at C=16, p50 TTFT", 358.8, 1000 * middle.ttft_at(0.5), "ms", 0.25),
        Row("prefill interference", 3.9, middle.ttft_at(0.5) / alone.ttft_at(0.5), "x", 0.25),
        Row("queueing at C=16, L=1024, mean", 47, 1000 * middle.mean_queue, "ms"),
        Row("p99 TTFT at L=4096", 6.0, long.ttft_at(0.99), "s", 0.1),
        Row("p90 ITL at L=4096", 190, 1000 * long.gap_at(0.9), "ms", 0.1),
        Row("pure prefill steps at L=4096", 146, prefill.flops_s / 1e12, "TFLOP/s", 0.1),
        Row("pure decode steps at L=4096", 12.3, decode.flops_s / 1e12, "TFLOP/s", 0.1),
        Row("prefill over decode at L=4096", 12, prefill.flops_s / decode.flops_s, "x", 0.1),
        Row("decode intensity at L=256", 15, of_short.phases["decode"].intensity, "FLOP/byte", 0.2),
        Row("decode intensity at L=4096", 12, decode.intensity, "FLOP/byte", 0.2),
        *intensity_rows(),
        Row("total tokens/s rise with L, 4096 : 256", 1.0, long.total_s / short.total_s, "x", 0.0, at_least=True),
        Row("output tokens/s fall with L, 256 : 4096", 1.0, short.output_s / long.output_s, "x", 0.0, at_least=True),
    ]


def length_of(outcome: Outcome) -> int:
    return int(outcome.setup["prompt_tokens"])


def clients_of(outcome: Outcome) -> int:
    return int(outcome.setup["concurrency"])


def peak_percent(outcome: Outcome) -> float:
    return 100 * (outcome.kv_peak or 0.0)


def intensity_rows() -> list[Row]:
    """FLOPs for each byte read when a whole prompt is computed in one step."""
    cost = ModelCost.of(load_model("qwen2.5-7b"))
    rows = []
    for length, published in ((256, 242), (4096, 3867)):
        shape = StepShape()
        shape.add_prefill(length, 0, samples=True)
        rows.append(
            Row(f"prefill intensity at L={length}", published, intensity(step_work(cost, shape)), "FLOP/byte", 0.1)
        )
    return rows


def published_table(rows: Sequence[Row]) -> Table:
    columns = ("figure", "published", "simulated", "error", "bound", "holds")
    return Table("Published and simulated", columns, [row.cells() for row in rows])


def length_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    columns = ("L", "TTFT p50", "TTFT p99", "ITL p50", "ITL p90", "output/s", "tokens/s", "KV peak")
    rows = [
        (
            str(length_of(o)),
            f"{1000 * o.ttft_at(0.5):.1f} ms",
            f"{o.ttft_at(0.99):.2f} s",
            f"{1000 * o.gap_at(0.5):.2f} ms",
            f"{1000 * o.gap_at(0.9):.1f} ms",
            f"{o.output_s:.0f}",
            f"{o.total_s:.0f}",
            f"{peak_percent(o):.1f} %",
        )
        for o in outcomes
    ]
    return Table(title, columns, rows)


def opening_rows(long: Outcome) -> list[tuple[int, Reading]]:
    """Published running requests and the simulated state, by second; the published ones count from its first sample."""
    return [(published, long.reading_at(i + 1)) for i, published in enumerate(RUNNING)]


def opening_table(long: Outcome) -> Table:
    rows = [
        (str(i), str(published), str(found.running), str(16 - published), str(found.waiting))
        for i, (published, found) in enumerate(opening_rows(long), start=1)
    ]
    columns = ("second", "running, published", "simulated", "waiting, published", "simulated")
    return Table("Opening seconds at L=4096", columns, rows)


def occupancy_table(clients: Sequence[Outcome], by_length: Sequence[Outcome], repeated: Outcome) -> tuple[Table, Row]:
    """Both sweeps on one axis, and the factor between a crowded and a long-context load at equal occupancy."""
    joined = sorted([*clients, *by_length], key=lambda o: (peak_percent(o), clients_of(o)))
    rows = [
        (f"{peak_percent(o):.1f} %", str(clients_of(o)), str(length_of(o)), f"{o.output_s:.0f}", f"{o.total_s:.0f}")
        for o in [*joined, repeated]
    ]
    long = max(by_length, key=length_of)
    crowded_s = _between([(peak_percent(o), o.output_s) for o in clients], peak_percent(long))
    table = Table(
        "Concurrency at L=1024 and length at C=16, by KV occupancy; last, C=16 at L=1024 with another seed",
        ("KV peak", "C", "L", "output/s", "tokens/s"),
        rows,
    )
    return table, Row("output at equal KV occupancy, crowded : long", 3.9, crowded_s / long.output_s, "x", 0.1)


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Linear between the neighbours of x."""
    (x0, y0), (x1, y1) = next((left, right) for left, right in pairwise(points) if left[0] <= x <= right[0])
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def budget_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [
        (
            str(o.setup["max_num_batched_tokens"]),
            f"{o.ttft_at(0.5):.3f} s",
            f"{o.ttft_at(0.99):.2f} s",
            f"{1000 * o.gap_at(0.5):.2f} ms",
            f"{1000 * o.gap_at(0.9):.0f} ms",
            f"{1000 * o.gap_at(0.99):.0f} ms",
            f"{o.output_s:.0f}",
        )
        for o in outcomes
    ]
    columns = ("max_num_batched_tokens", "TTFT p50", "TTFT p99", "ITL p50", "ITL p90", "ITL p99", "output/s")
    return Table("What a larger token budget trades at L=4096", columns, rows)


def pool_rows(larger: Outcome) -> list[Row]:
    tokens = larger.point.pool_tokens or 0
    return [
        Row("peak KV use at L=4096, larger pool", 60, peak_percent(larger), "%", 0.02),
        Row("requests of L=4096 that a larger pool holds", 26, int(fitting(tokens)), "", 0.0),
    ]


def fitting(pool_tokens: int) -> float:
    return theoretical_concurrency(pool_tokens // BLOCK, BLOCK, 4096 + OUTPUT)


def pool_table(outcomes: Sequence[Outcome], kv_bytes_per_token: int) -> Table:
    rows = []
    for o in outcomes:
        tokens = o.point.pool_tokens or 0
        rows.append(
            (
                f"{tokens:,}",
                f"{tokens * kv_bytes_per_token / 2**30:.2f} GiB",
                f"{fitting(tokens):.2f}",
                f"{peak_percent(o):.1f} %",
                f"{o.output_s:.0f}",
            )
        )
    columns = ("pool, tokens", "bytes", "requests that fit", "KV peak at C=16", "output/s")
    return Table("A larger KV pool at L=4096 (published: 79.8 % and 60 %; limits 20 and 26)", columns, rows)


def sharing_table(outcomes: Sequence[Outcome]) -> Table:
    """How far shared prefixes flatten the growth of KV use with L."""
    rows = []
    for i, share in enumerate(SHARES):
        slope = kv_line(outcomes[i * len(LENGTHS) : (i + 1) * len(LENGTHS)]).slope
        rows.append((f"{100 * share:.0f} %", f"{slope:.2f}", f"{100 * (1 - slope / PUBLISHED.clients):.0f} %"))
    columns = ("shared part of the prompt", "slope of KV use x pool", "below 16 by")
    return Table("Prefix cache on, prompts with a common head, C=16", columns, rows)


def run(target: SimulatorTarget, setups: Sequence[Setup]) -> list[Outcome]:
    return [Outcome(target.run(setup)) for setup in setups]


def simulate(quick: bool) -> tuple[list[Row], list[Table]]:
    """A quick run leaves tables out; its figures are the same."""
    target = simulator_target(PUBLISHED.model, PUBLISHED.device)
    peaks = peaks_of(target.machine)
    assert peaks
    sweep, singles = run(target, lengths(PUBLISHED)), run(target, lengths_alone(PUBLISHED))
    alone = next(outcome for outcome in singles if length_of(outcome) == PUBLISHED.crowded_length)
    again = replace(PUBLISHED.setup(1024), load=replace(PUBLISHED.setup(1024).load, seed=2))
    by_clients, by_pool = run(target, concurrency(PUBLISHED)), run(target, pools(PUBLISHED))
    joined, equal = occupancy_table(by_clients, sweep, *run(target, [again]))
    rows = [*published_rows(sweep, alone, peaks), *pool_rows(by_pool[-1]), equal]
    tables = [
        length_table("Lengths at C=16", sweep),
        opening_table(sweep[-1]),
        joined,
        length_table("Lengths at C=1: prefill alone, measured", singles),
        pool_table(by_pool, target.hardware.cost.kv_bytes_per_token),
    ]
    if not quick:
        tables += [
            budget_table(run(target, budgets(PUBLISHED))),
            sharing_table(run(target, prefixes(PUBLISHED))),
            protocol_table(target, alone),
        ]
    return rows, [published_table(rows), *tables]


def protocol_table(target: SimulatorTarget, alone: Outcome) -> Table:
    """What the published experiment does not say, and how much TTFT at C=16 depends on it."""
    alone_s = alone.ttft_at(0.5)
    rows = []
    for pause_s in (0.0, 0.002, 0.005, 0.01):
        for waves in (3, 6, 10, 40):
            size = replace(PUBLISHED, pause_s=pause_s, requests_per_client=waves)
            (outcome,) = run(target, [size.setup(1024)])
            p50, average = outcome.ttft_at(0.5), outcome.mean_ttft
            rows.append(
                (
                    f"{1000 * pause_s:g} ms",
                    str(waves),
                    f"{1000 * p50:.0f} ms",
                    f"{p50 / alone_s:.2f}x",
                    f"{1000 * average:.0f} ms",
                    f"{average / alone_s:.2f}x",
                    f"{1000 * outcome.mean_queue:.0f} ms",
                )
            )
    columns = ("pause", "requests a client", "TTFT p50", "over alone", "TTFT mean", "over alone", "queueing, mean")
    return Table("Prefill interference at L=1024, by what is not known of the experiment", columns, rows)


def main() -> None:
    parser = arguments("A published experiment against its simulation.")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/simulation.md")
    options = parser.parse_args()
    rows, tables = simulate(options.quick)
    for table in reversed(tables):
        print_table(table.title, table.columns, table.rows)
    write_json([row.figure() for row in rows], options.json)
    if options.docs:
        write_tables(tables, DOCS)


if __name__ == "__main__":
    main()
