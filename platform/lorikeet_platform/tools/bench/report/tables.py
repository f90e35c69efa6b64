"""The figures of runs as tables of text, ready for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lorikeet_engine.experiments.lines import implied_bandwidth, itl_line, kv_line, series_of
from lorikeet_engine.experiments.measures import Outcome, Peaks, peaks_of
from lorikeet_engine.experiments.record import RunRecord, SetupValue
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.options import goals_of
from lorikeet_platform.tools.bench.report.page import over_name
from lorikeet_platform.tools.bench.report.panels.joined import COMPARED, repeated_in
from lorikeet_platform.tools.bench.report.panels.lengths import (
    clients_of,
    has_kv,
    itl_points,
    kv_points,
    lines_of,
    named,
    slope_error,
)
from lorikeet_platform.tools.bench.summary import served_part, summarise, values_of

SHARES: Final = (0.5, 0.9, 0.99)
MOST_ROWS: Final = 50
NONE: Final = "–"  # nobody had it


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables_of(record: RunRecord) -> list[Table]:
    """Those that have rows."""
    tables = [
        _setup(record),
        _points(record),
        _lines(record),
        _phases(record),
        *([_latency(record), _requests(record), _tenants(record)] if len(record.points) == 1 else ()),
    ]
    return [table for table in tables if table.rows]


def shared_tables(records: Sequence[RunRecord]) -> list[Table]:
    """Of several runs together."""
    rows = []
    for same in repeated_in([served_part(record) for record in records]):
        varied = ", ".join(f"{name} {shown(same.setup[name])}" for name in REPEATED_NAMES if name in same.setup)
        for name, unit, value in COMPARED:
            values = [value(outcome) for outcome in same.outcomes]
            average = sum(values) / len(values)
            spread = 100 * (max(values) - min(values)) / average if average else 0.0
            rows.append((varied, name, str(len(values)), f"{average:,.4g} {unit}", f"{spread:.2f} %"))
    repeated = Table("Repeatability", ("setup", "figure", "times", "mean", "spread, of the mean"), rows)
    return [repeated] if rows else []


REPEATED_NAMES: Final = ("prompt_tokens", "output_tokens", "concurrency", "requests_per_s", "max_num_batched_tokens")


def shown(value: SetupValue | None) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.6g}"
        case int():
            return f"{value:,}"
    return value


def _setup(record: RunRecord) -> Table:
    """What all points have in common, and the machine."""
    machine = record.machine
    facts: list[tuple[str, str]] = [("ran on", record.target), ("started", record.started_at), ("model", machine.model)]
    units = (
        ("device", machine.device or None, ""),
        ("peak", machine.peak_flops and machine.peak_flops / 1e12, "TFLOP/s"),
        ("peak bandwidth", machine.peak_bandwidth and machine.peak_bandwidth / 1e9, "GB/s"),
        ("copying memory, read and written", machine.copy_bandwidth and machine.copy_bandwidth / 1e9, "GB/s"),
        ("KV of a token", machine.kv_bytes_per_token, "bytes"),
        ("KV pool", machine.pool_tokens, "tokens"),
    )
    facts += [(name, f"{shown(value)} {unit}".strip()) for name, value, unit in units if value]
    first = record.points[0].setup if record.points else {}
    same = {k: v for k, v in first.items() if k != record.axis and all(p.setup.get(k) == v for p in record.points)}
    return Table("Setup", ("", ""), [*facts, *((name, shown(value)) for name, value in same.items())])


def _points(record: RunRecord) -> Table:
    peaks = peaks_of(record.machine)
    names = list(dict.fromkeys(name for series in series_of(record) for name in series.named))
    has_kv_peak = any(Outcome(point).kv_peak is not None for point in record.points)
    has_queue = all(request.queue_s is not None for point in record.points for request in point.requests[:1])
    columns = [
        *names,
        over_name(record.axis) if record.axis else "point",
        *("served", "TTFT p50", "TTFT p99", *(("in the queue, mean",) if has_queue else ())),
        *("ITL p50", "ITL p90", "ITL p99", "output/s", "tokens/s"),
        *(("KV peak",) if has_kv_peak else ()),
        *(("MFU", "MBU") if peaks else ()),
    ]
    rows = []
    for series in series_of(record):
        for outcome in series.outcomes:
            cells = [shown(series.named.get(name)) for name in names]
            cells += [shown(outcome.setup.get(record.axis)) if record.axis else "all", *_served(outcome)]
            if not outcome.served:
                rows.append([*cells, *[""] * (len(columns) - len(cells))])
                continue
            cells += [f"{1000 * outcome.mean_queue:,.1f} ms"] if has_queue else []
            cells += [f"{1000 * outcome.gap_at(share):,.2f} ms" for share in SHARES]
            cells += [f"{outcome.output_s:,.1f}", f"{outcome.total_s:,.1f}"]
            cells += [f"{100 * (outcome.kv_peak or 0.0):.1f} %"] if has_kv_peak else []
            cells += _utilisation(outcome, peaks) if peaks else []
            rows.append(cells)
    return Table("Points", columns, rows)


def _served(outcome: Outcome) -> tuple[str, ...]:
    n_all = len(outcome.point.requests)
    n_served = len(outcome.served)
    served = f"{n_served:,}" if n_served == n_all else f"{n_served:,} of {n_all:,}"
    if not values_of("ttft", outcome.served):
        return served, "", ""
    return served, f"{1000 * outcome.ttft_at(0.5):,.1f} ms", f"{1000 * outcome.ttft_at(0.99):,.1f} ms"


def _utilisation(outcome: Outcome, peaks: Peaks) -> list[str]:
    if not outcome.point.readings:
        return ["", ""]
    whole = outcome.window.whole
    return [f"{100 * whole.mfu(peaks):.1f} %", f"{100 * whole.mbu(peaks):.1f} %"]


def _lines(record: RunRecord) -> Table:
    rows = []
    record, machine = served_part(record), record.machine
    for series in lines_of(record):
        clients = clients_of(series.outcomes)
        label = named(series) or "all points"
        if has_kv(series, machine):
            line = kv_line(series.outcomes, machine.pool_tokens)
            error = slope_error(kv_points(series, machine), line)
            meaning = f"{clients} clients: {100 * (line.slope / clients - 1):+.2f} %" if clients else ""
            rows.append(
                (label, "KV in use at the peak", f"{line.intercept:,.0f} tokens", f"{line.slope:.4f} ± {error:.4f}",
                 f"{line.r_squared:.6f}", meaning)
            )  # fmt: skip
        if all(outcome.point.gaps for outcome in series.outcomes):
            itl = itl_line(series.outcomes)
            error = 1000 * slope_error(itl_points(series), itl)
            rows.append(
                (label, "ITL p50", f"{1000 * itl.intercept:.3f} ms", f"{1000 * itl.slope:.5f} ± {error:.5f} ms",
                 f"{itl.r_squared:.6f}", _bandwidth_words(itl.slope, clients, record))
            )  # fmt: skip
    columns = ("series", "figure", "at no prompt", "slope, a token of prompt", "R²", "which means")
    return Table("Lines over the prompts' length", columns, rows)


def _bandwidth_words(slope: float, clients: int | None, record: RunRecord) -> str:
    machine = record.machine
    if clients is None or machine.kv_bytes_per_token is None or slope <= 0:
        return ""
    line = itl_line(lines_of(record)[0].outcomes)._replace(slope=slope)
    words = f"KV read at {implied_bandwidth(line, clients, machine.kv_bytes_per_token) / 1e9:,.4g} GB/s"
    if machine.copy_bandwidth:
        words += f"; copying: {machine.copy_bandwidth / 1e9:,.4g} GB/s"
    if machine.peak_bandwidth:
        words += f"; peak: {machine.peak_bandwidth / 1e9:,.4g} GB/s"
    return words


def _phases(record: RunRecord) -> Table:
    peaks = peaks_of(record.machine)
    rows = []
    for point in record.points:
        if not point.readings or not point.readings[-1].steps:
            continue
        outcome = Outcome(point)
        name = shown(point.setup.get(record.axis)) if record.axis else "all"
        for kind, phase in outcome.window.phases.items():
            use = [f"{100 * phase.mfu(peaks):.1f} %", f"{100 * phase.mbu(peaks):.1f} %"] if peaks else ["", ""]
            rows.append(
                (name, kind, f"{phase.steps:,}", f"{phase.seconds:,.2f} s",
                 f"{100 * phase.seconds / point.seconds:.1f} %", f"{phase.flops_s / 1e12:,.4g} TFLOP/s",
                 f"{phase.read_s / 1e9:,.4g} GB/s", *use, f"{phase.intensity:,.4g}")
            )  # fmt: skip
    columns = (
        over_name(record.axis) if record.axis else "point",
        *("steps", "how many", "time", "of the time", "FLOPs", "read", "MFU", "MBU", "FLOP for each byte"),
    )
    return Table("Phases", columns, rows[:MOST_ROWS])


def _latency(record: RunRecord) -> Table:
    summary = summarise(record.points[0], shares=SHARES)
    rows = [
        (latency.metric.upper(), f"{latency.count:,}", *_milliseconds([latency.mean, *latency.percentiles.values()]))
        for latency in summary.latencies
        if latency.count
    ]
    return Table("Latency, milliseconds", ("", "count", "mean", *(f"p{100 * share:g}" for share in SHARES)), rows)


def _milliseconds(values: Iterable[float]) -> Iterator[str]:
    return (f"{1000 * value:,.2f}" for value in values)


def _requests(record: RunRecord) -> Table:
    (point,) = record.points
    summary = summarise(point, goals=_goals(point.setup.get("goodput")))
    rows = [
        ("seconds", f"{summary.seconds:,.2f}"),
        *((outcome, f"{n:,}") for outcome, n in summary.outcomes.items() if n),
        *((f"… {code}", f"{n:,}") for code, n in summary.codes.items()),
        ("requests/s", f"{summary.requests_per_s:,.2f}"),
        ("prompt tokens", f"{summary.prompt_tokens:,}"),
        *([("… of them cached", f"{summary.cached_tokens:,}")] if summary.cached_tokens is not None else ()),
        ("output tokens", f"{summary.output_tokens:,}"),
        *((f"asked of {name}", f"{n:,}") for name, n in summary.adapters.items()),
    ]
    if summary.goodput:
        goals = ", ".join(f"{metric} ≤ {1000 * goal:g} ms" for metric, goal in summary.goodput.goals.items())
        share = f"{summary.goodput.requests_per_s:,.2f}/s, {100 * summary.goodput.share:.1f} %"
        rows.append((f"goodput ({goals})", share))
    return Table("Requests", ("", ""), rows[:MOST_ROWS])


def _goals(told: SetupValue | None) -> dict[str, float]:
    """As `bench serve` leaves them; of a record that says something else, none."""
    try:
        return goals_of([told]) if isinstance(told, str) else {}
    except DescriptionError:
        return {}


def _tenants(record: RunRecord) -> Table:
    summary = summarise(record.points[0])
    rows = [
        (
            own.tenant,
            f"{own.sent:,}",
            f"{own.served:,}",
            f"{own.output_tokens:,}",
            *(NONE if seconds is None else f"{1000 * seconds:,.2f}" for seconds in (own.ttft_p50, own.ttft_p99)),
        )
        for own in sorted(summary.tenants, key=lambda own: -own.sent)
    ]
    columns = ("tenant", "sent", "served", "output tokens", "TTFT p50, ms", "TTFT p99, ms")
    return Table("Tenants", columns, rows[:MOST_ROWS] if len(rows) > 1 else [])
