"""A measured experiment against its simulation: one RTX 4090, Qwen2.5-7B, five prompt lengths, 16 clients.

The device's constants were fitted to two of the lengths and to one prompt alone (`lorikeet_engine.simulation.fit`);
whatever else stands in the table was predicted. `--docs` writes the tables into docs/simulation.md.

    python benchmarks/published_experiment.py [--json FILE] [--quick] [--docs]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from figures import Figure, arguments, print_table, write_json
from length_sweep import BLOCK, KV_BYTES_PER_TOKEN, LARGER_POOL_BLOCKS, OUTPUT, POOL_BLOCKS, Outcome, Setup, line, run

from lorikeet_engine.cost import ModelCost, StepShape, intensity, step_work, theoretical_concurrency
from lorikeet_engine.simulation.report.samples import mean
from lorikeet_engine.simulation.shipped import load_device, load_model

DOCS = Path(__file__).parents[1] / "docs" / "simulation.md"
LENGTHS = (256, 512, 1024, 2048, 4096)
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
BUDGETS = (1024, 2048, 4096, 8192)
SHARES = (0.0, 0.25, 0.5, 0.75)
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


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the page."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def published_rows(sweep: Sequence[Outcome], alone: Outcome) -> list[Row]:
    """The length sweep, and what the sweep at one length says about interference."""
    profile = load_device("rtx4090")
    short, long = sweep[0], sweep[-1]
    middle = next(outcome for outcome in sweep if outcome.setup.length == alone.setup.length)
    itl = line([(o.setup.length, 1000 * o.itl_p50) for o in sweep])
    usage = line([(o.setup.length, o.usage * o.setup.pool_tokens) for o in sweep])
    rows = [
        Row("ITL p50, intercept", 16.36, itl[0], "ms", 0.08),
        Row("ITL p50, slope", 0.00099, itl[1], "ms/token", 0.08),
        Row("ITL p50, R²", 0.99998, itl[2]),
        Row("peak KV use, slope x pool", 16.0, usage[1], "tokens/token", 0.01),
        Row("peak KV use, R²", 0.9999, usage[2], "", 0.0, at_least=True),
        Row("peak KV use at L=4096", 79.8, 100 * long.usage, "%"),
    ]
    ends = ((short, 14.2, 81.6, 23.5, 822.5), (long, 53.2, 43.3, 87.9, 436.9))
    for outcome, mfu, mbu, tflops, gigabytes in ends:
        at = f"at L={outcome.setup.length}"
        rows += [
            Row(f"MFU {at}", mfu, 100 * outcome.flops_s / profile.peak_flops, "%", 0.1),
            Row(f"MBU {at}", mbu, 100 * outcome.read_s / profile.peak_bandwidth, "%", 0.1),
            Row(f"FLOPs {at}", tflops, outcome.flops_s / 1e12, "TFLOP/s"),
            Row(f"bytes read {at}", gigabytes, outcome.read_s / 1e9, "GB/s"),
        ]
    return [
        *rows,
        Row("iterations at L=256", 56.3, short.iterations_s, "1/s"),
        Row("prefill of 1024 alone, p50 TTFT", 92.2, 1000 * alone.ttft_at(0.5), "ms"),
        Row("prefill of 1024 at C=16, p50 TTFT", 358.8, 1000 * middle.ttft_at(0.5), "ms"),
        Row("prefill interference", 3.9, middle.ttft_at(0.5) / alone.ttft_at(0.5), "x", 0.25),
        Row("queueing at C=16, L=1024, mean", 47, 1000 * mean(middle.queue), "ms"),
        Row("p99 TTFT at L=4096", 6.0, long.ttft_at(0.99), "s"),
        Row("p90 ITL at L=4096", 190, 1000 * long.gaps.percentile(0.9), "ms"),
        Row("pure prefill steps at L=4096", 146, long.phase_flops_s("prefill") / 1e12, "TFLOP/s"),
        Row("pure decode steps at L=4096", 12.3, long.phase_flops_s("decode") / 1e12, "TFLOP/s"),
        Row("decode intensity at L=256", 15, intensity(short.phases["decode"][1]), "FLOP/byte"),
        Row("decode intensity at L=4096", 12, intensity(long.phases["decode"][1]), "FLOP/byte"),
        *intensity_rows(),
        Row("total tokens/s rise with L, 4096 : 256", 1.0, long.total_s / short.total_s, "x", 0.0, at_least=True),
        Row("output tokens/s fall with L, 256 : 4096", 1.0, short.output_s / long.output_s, "x", 0.0, at_least=True),
    ]


def intensity_rows() -> list[Row]:
    """FLOPs for each byte read when a whole prompt is computed in one step."""
    cost = ModelCost.of(load_model("qwen2.5-7b"))
    rows = []
    for length, published in ((256, 242), (4096, 3867)):
        shape = StepShape()
        shape.add_prefill(length, 0, samples=True)
        rows.append(Row(f"prefill intensity at L={length}", published, intensity(step_work(cost, shape)), "FLOP/byte"))
    return rows


def published_table(rows: Sequence[Row]) -> Table:
    columns = ("figure", "published", "simulated", "error", "bound", "holds")
    return Table("Published and simulated", columns, [row.cells() for row in rows])


def length_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    columns = ("L", "TTFT p50", "TTFT p99", "ITL p50", "ITL p90", "output/s", "tokens/s", "KV peak")
    rows = [
        (
            str(o.setup.length),
            f"{1000 * o.ttft_at(0.5):.1f} ms",
            f"{o.ttft_at(0.99):.2f} s",
            f"{1000 * o.itl_p50:.2f} ms",
            f"{1000 * o.gaps.percentile(0.9):.1f} ms",
            f"{o.output_s:.0f}",
            f"{o.total_s:.0f}",
            f"{100 * o.usage:.1f} %",
        )
        for o in outcomes
    ]
    return Table(title, columns, rows)


def opening_table(long: Outcome) -> Table:
    """Running and waiting in the first seconds. The published seconds are those of its sampling, from its first one."""
    rows = []
    for i, published in enumerate(RUNNING):
        sample = long.at(i + 1)
        rows.append((str(i + 1), str(published), str(sample.running), str(16 - published), str(sample.waiting)))
    columns = ("second", "running, published", "simulated", "waiting, published", "simulated")
    return Table("Opening seconds at L=4096", columns, rows)


def occupancy_table(clients: Sequence[Outcome], lengths: Sequence[Outcome], repeated: Outcome) -> tuple[Table, Row]:
    """Both sweeps on one axis, and the factor between a crowded and a long-context load at equal occupancy."""
    joined = sorted([*clients, *lengths], key=lambda o: (o.usage, o.setup.clients))
    rows = [
        (f"{100 * o.usage:.1f} %", str(o.setup.clients), str(o.setup.length), f"{o.output_s:.0f}", f"{o.total_s:.0f}")
        for o in [*joined, repeated]
    ]
    long = max(lengths, key=lambda o: o.setup.length)
    crowded_s = _between([(o.usage, o.output_s) for o in clients], long.usage)
    table = Table(
        "Concurrency at L=1024 and length at C=16, by KV occupancy; last, C=16 at L=1024 with another seed",
        ("KV peak", "C", "L", "output/s", "tokens/s"),
        rows,
    )
    return table, Row("output at equal KV occupancy, crowded : long", 3.9, crowded_s / long.output_s, "x")


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Linear between the neighbours of x."""
    (x0, y0), (x1, y1) = next((left, right) for left, right in pairwise(points) if left[0] <= x <= right[0])
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def budget_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [
        (
            str(o.setup.budget),
            f"{o.ttft_at(0.5):.3f} s",
            f"{o.ttft_at(0.99):.2f} s",
            f"{1000 * o.itl_p50:.2f} ms",
            f"{1000 * o.gaps.percentile(0.9):.0f} ms",
            f"{1000 * o.gaps.percentile(0.99):.0f} ms",
            f"{o.output_s:.0f}",
        )
        for o in outcomes
    ]
    columns = ("max_num_batched_tokens", "TTFT p50", "TTFT p99", "ITL p50", "ITL p90", "ITL p99", "output/s")
    return Table("What a larger token budget trades at L=4096", columns, rows)


def pool_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [
        (
            f"{o.setup.pool_tokens:,}",
            f"{o.setup.pool_blocks * BLOCK * KV_BYTES_PER_TOKEN / 2**30:.2f} GiB",
            f"{theoretical_concurrency(o.setup.pool_blocks, BLOCK, 4096 + OUTPUT):.2f}",
            f"{100 * o.usage:.1f} %",
            f"{o.output_s:.0f}",
        )
        for o in outcomes
    ]
    columns = ("pool, tokens", "bytes", "requests that fit", "KV peak at C=16", "output/s")
    return Table("A larger KV pool at L=4096 (published: 79.8 % and 60 %; limits 20 and 26)", columns, rows)


def sharing_table(lengths: Sequence[int], waves: int) -> Table:
    """How far shared prefixes flatten the growth of KV use with L."""
    rows = []
    for share in SHARES:
        outcomes = [
            run(Setup(length=n, shared=int(n * share) // BLOCK * BLOCK, caching=True, waves=waves)) for n in lengths
        ]
        _, slope, _ = line([(o.setup.length, o.usage * o.setup.pool_tokens) for o in outcomes])
        rows.append((f"{100 * share:.0f} %", f"{slope:.2f}", f"{100 * (1 - slope / 16):.0f} %"))
    columns = ("shared part of the prompt", "slope of KV use x pool", "below 16 by")
    return Table("Prefix cache on, prompts with a common head, C=16", columns, rows)


def simulate(quick: bool) -> tuple[list[Row], list[Table]]:
    waves = 6  # the figures of the first table are the same in a quick run
    sweep = [run(Setup(length=length, waves=waves)) for length in LENGTHS]
    singles = [run(Setup(length=length, clients=1, waves=4)) for length in LENGTHS]
    rows = published_rows(sweep, singles[LENGTHS.index(1024)])
    tables = [length_table("Lengths at C=16", sweep), opening_table(sweep[-1])]
    if not quick:
        clients = [run(Setup(length=1024, clients=n, waves=waves)) for n in CLIENTS]
        repeated = run(Setup(length=1024, waves=waves, seed=2))
        table, row = occupancy_table(clients, sweep, repeated)
        rows.append(row)
        tables += [
            table,
            length_table("Lengths at C=1: prefill alone, measured", singles),
            budget_table([run(Setup(length=4096, budget=budget, waves=waves)) for budget in BUDGETS]),
            pool_table([run(Setup(length=4096, pool_blocks=n)) for n in (POOL_BLOCKS, LARGER_POOL_BLOCKS)]),
            sharing_table(LENGTHS, waves),
            protocol_table(singles[LENGTHS.index(1024)]),
        ]
    return rows, [published_table(rows), *tables]


def protocol_table(alone: Outcome) -> Table:
    """What the published experiment does not say, and how much TTFT at C=16 depends on it."""
    alone_s = alone.ttft_at(0.5)
    rows = []
    for pause_s in (0.0, 0.002, 0.005, 0.01):
        for waves in (3, 6, 10, 40):
            outcome = run(Setup(length=1024, waves=waves, pause_s=pause_s))
            p50, average = outcome.ttft_at(0.5), mean(outcome.ttft)
            rows.append(
                (
                    f"{1000 * pause_s:g} ms",
                    str(waves),
                    f"{1000 * p50:.0f} ms",
                    f"{p50 / alone_s:.2f}x",
                    f"{1000 * average:.0f} ms",
                    f"{average / alone_s:.2f}x",
                    f"{1000 * mean(outcome.queue):.0f} ms",
                )
            )
    columns = ("pause", "requests a client", "TTFT p50", "over alone", "TTFT mean", "over alone", "queueing, mean")
    return Table("Prefill interference at L=1024, by what is not known of the experiment", columns, rows)


def write_docs(tables: Sequence[Table]) -> None:
    """Replace what stands between the two marks."""
    begin, end = "<!-- tables: begin -->", "<!-- tables: end -->"
    text = DOCS.read_text()
    head, tail = text[: text.index(begin)], text[text.index(end) :]
    DOCS.write_text(head + begin + "\n\n" + "\n".join(markdown(table) for table in tables) + "\n" + tail)


def markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", _line(table.columns), _line(["---"] * len(table.columns))]
    return "\n".join([*lines, *(_line(row) for row in table.rows), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = arguments("A published experiment against its simulation.")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/simulation.md")
    options = parser.parse_args()
    rows, tables = simulate(options.quick)
    for table in reversed(tables):
        print_table(table.title, table.columns, table.rows)
    write_json([row.figure() for row in rows], options.json)
    if options.docs:
        write_docs(tables)


if __name__ == "__main__":
    main()
