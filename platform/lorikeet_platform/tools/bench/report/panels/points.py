"""What each point of a sweep gives, over what the sweep varies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from lorikeet_engine.experiments.lines import Series, series_of
from lorikeet_engine.experiments.measures import Outcome, peaks_of
from lorikeet_engine.experiments.record import RunRecord
from lorikeet_platform.tools.bench.report.page import (
    BLUE,
    COLOURS,
    ORANGE,
    TEAL,
    Panel,
    from_zero,
    label,
    over_name,
    places,
)
from lorikeet_platform.tools.bench.report.panels.lengths import named

LOADS = frozenset({"concurrency", "requests_per_s"})
PERCENTILES = ((0.5, "p50", BLUE), (0.9, "p90", TEAL), (0.99, "p99", ORANGE))


def first_series(record: RunRecord) -> Series | None:
    """The first one over a numeric axis, of at least two points."""
    if not record.axis:
        return None
    series = series_of(record)[0]
    numeric = all(isinstance(o.setup.get(record.axis), int | float) for o in series.outcomes)
    return series if numeric and len(series.outcomes) > 1 else None


def at(outcome: Outcome, axis: str) -> float:
    return float(outcome.setup[axis])


def ordered(series: Series, axis: str) -> list[Outcome]:
    return sorted(series.outcomes, key=lambda outcome: at(outcome, axis))


def split_panel(record: RunRecord) -> Panel | None:
    """Queue and prefill as parts of the mean time to the first token."""
    series = first_series(record)
    if series is None or any(r.queue_s is None for o in series.outcomes for r in o.served):
        return None
    outcomes = ordered(series, record.axis)

    def draw(axes: Axes) -> None:
        names = [f"{at(outcome, record.axis):,g}" for outcome in outcomes]
        queue = [1000 * outcome.mean_queue for outcome in outcomes]
        prefill = [1000 * (outcome.mean_ttft - outcome.mean_queue) for outcome in outcomes]
        axes.bar(names, queue, 0.6, color=ORANGE, label="in the queue")
        bars = axes.bar(names, prefill, 0.6, bottom=queue, color=BLUE, label="from its start to the first token")
        axes.bar_label(bars, [f"{q + p:,.0f}" for q, p in zip(queue, prefill, strict=True)], padding=2, fontsize=8)
        from_zero(axes, max(map(sum, zip(queue, prefill, strict=True))), room=1.2)
        label(axes, over_name(record.axis), "mean TTFT, milliseconds")

    return Panel("Where the time to the first token goes", draw)


def throughput_panel(record: RunRecord) -> Panel | None:
    def draw_of(outcomes: Sequence[Outcome], axes: Axes) -> None:
        places_of = [at(outcome, record.axis) for outcome in outcomes]
        axes.plot(places_of, [o.total_s for o in outcomes], "o-", color=TEAL, label="prompt and output")
        axes.plot(places_of, [o.output_s for o in outcomes], "o-", color=BLUE, label="output")
        axes.set_ylim(bottom=0)
        places(axes, places_of)
        label(axes, over_name(record.axis), "tokens/s")

    return _panel(record, "Throughput: what is read in, and what comes out", draw_of)


def ttft_panel(record: RunRecord) -> Panel | None:
    return _percentile_panel(record, "Time to the first token", "seconds", lambda o, share: o.ttft_at(share))


def itl_percentiles_panel(record: RunRecord) -> Panel | None:
    return _percentile_panel(record, "Time between tokens", "milliseconds", lambda o, share: 1000 * o.gap_at(share))


def utilisation_panel(record: RunRecord) -> Panel | None:
    peaks = peaks_of(record.machine)
    if peaks is None or not all(point.readings and point.readings[-1].flops for point in record.points):
        return None

    def draw_of(outcomes: Sequence[Outcome], axes: Axes) -> None:
        places_of = [at(outcome, record.axis) for outcome in outcomes]
        mfu = [100 * o.window.whole.mfu(peaks) for o in outcomes]
        mbu = [100 * o.window.whole.mbu(peaks) for o in outcomes]
        for name, colour, values, others in (("MFU", BLUE, mfu, mbu), ("MBU", TEAL, mbu, mfu)):
            axes.plot(places_of, values, "o-", color=colour, label=name)
            for x, y, other in zip(places_of, values, others, strict=True):
                is_upper = y > other or (y == other and values is mfu)
                axes.annotate(
                    f"{y:.1f}", (x, y), xytext=(0, 5 if is_upper else -5), textcoords="offset points", ha="center",
                    va="bottom" if is_upper else "top", fontsize=7, color=colour,
                )  # fmt: skip
        axes.set_ylim(-6, 108)  # room for what is written below 0 and above 100
        axes.set_yticks(range(0, 101, 20))
        places(axes, places_of)
        label(axes, over_name(record.axis), "% of the peak, whole run")

    return _panel(record, "Use of the device", draw_of)


def series_panel(record: RunRecord) -> Panel | None:
    """Output of several series side by side."""
    found = series_of(record) if record.axis else []
    if len(found) < 2 or first_series(record) is None:
        return None

    def draw(axes: Axes) -> None:
        for series, colour in zip(found, COLOURS, strict=False):
            outcomes = ordered(series, record.axis)
            xs = [at(outcome, record.axis) for outcome in outcomes]
            axes.plot(xs, [o.output_s for o in outcomes], "o-", color=colour, label=named(series))
        axes.set_ylim(bottom=0)
        places(axes, [at(o, record.axis) for series in found for o in series.outcomes])
        label(axes, over_name(record.axis), "output tokens/s")

    return Panel("Output, by what else differs", draw)


def _percentile_panel(
    record: RunRecord, title: str, unit: str, value: Callable[[Outcome, float], float]
) -> Panel | None:
    def draw_of(outcomes: Sequence[Outcome], axes: Axes) -> None:
        places_of = [at(outcome, record.axis) for outcome in outcomes]
        for share, name, colour in PERCENTILES:
            axes.plot(places_of, [value(o, share) for o in outcomes], "o-", color=colour, label=name)
        axes.set_yscale("log")
        places(axes, places_of)
        label(axes, over_name(record.axis), unit)

    return _panel(record, title, draw_of)


def _panel(record: RunRecord, title: str, draw_of: Callable[[Sequence[Outcome], Axes], None]) -> Panel | None:
    series = first_series(record)
    if series is None:
        return None
    outcomes = ordered(series, record.axis)
    return Panel(title, lambda axes: draw_of(outcomes, axes))


def exchange_panels(record: RunRecord) -> list[Panel]:
    """What the first token costs the others, and what both cost in output.

    A setting shows in the worst gaps, when a prompt comes in between; a load in all of them.
    """
    series = first_series(record)
    if series is None or not all(o.point.gaps for o in series.outcomes):
        return []
    outcomes = ordered(series, record.axis)
    is_load = record.axis in LOADS
    gaps = [1000 * (_mean_gap(o) if is_load else o.gap_at(0.99)) for o in outcomes]
    gap_name = f"ITL {'mean' if is_load else 'p99'}, milliseconds"

    def first_for_others(axes: Axes) -> None:
        for share, name, colour in PERCENTILES:
            ys = [o.ttft_at(share) for o in outcomes]
            axes.plot(gaps, ys, "o-", color=colour, label=f"TTFT {name}")
        _name_points(axes, outcomes, record.axis, gaps, [o.ttft_at(0.99) for o in outcomes])
        axes.set_yscale("log")
        axes.margins(x=0.1, y=0.18)
        label(axes, gap_name, "TTFT, seconds")

    def output_for_itl(axes: Axes) -> None:
        ys = [o.output_s for o in outcomes]
        axes.plot(gaps, ys, "o-", color=BLUE)
        _name_points(axes, outcomes, record.axis, gaps, ys)
        from_zero(axes, max(ys), room=1.1)
        axes.margins(x=0.1)
        label(axes, gap_name, "output tokens/s", legend=False)

    return [
        Panel(f"TTFT against ITL, by {over_name(record.axis)}", first_for_others),
        Panel(f"Output against ITL, by {over_name(record.axis)}", output_for_itl),
    ]


def _mean_gap(outcome: Outcome) -> float:
    gaps = outcome.point.gaps
    return sum(seconds * n for seconds, n in gaps) / sum(n for _, n in gaps)


def _name_points(axes: Axes, outcomes: Sequence[Outcome], axis: str, xs: Sequence[float], ys: Sequence[float]) -> None:
    for outcome, x, y in zip(outcomes, xs, ys, strict=True):
        name = f"{at(outcome, axis):,g}"
        axes.annotate(name, (x, y), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=7)
