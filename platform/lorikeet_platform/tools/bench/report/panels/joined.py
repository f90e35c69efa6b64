"""Several runs in one picture: joined on the axis of KV occupancy, and beside one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from lorikeet_engine.experiments.measures import Outcome
from lorikeet_engine.experiments.record import PointRecord, RunRecord, SetupValue
from lorikeet_platform.tools.bench.report.page import BLUE, COLOURS, TEAL, Panel, label, name_apart, over_name, places
from lorikeet_platform.tools.bench.report.panels.points import at, first_series, ordered

NOT_SETUP = frozenset({"seed", "repeat"})
Value = Callable[[Outcome], float]
COMPARED: tuple[tuple[str, str, Value], ...] = (
    ("TTFT p50", "milliseconds", lambda outcome: 1000 * outcome.ttft_at(0.5)),
    ("TTFT p99", "milliseconds", lambda outcome: 1000 * outcome.ttft_at(0.99)),
    ("ITL p50", "milliseconds", lambda outcome: 1000 * outcome.gap_at(0.5)),
    ("Output", "tokens/s", lambda outcome: outcome.output_s),
)


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same setup, run more than once."""

    setup: dict[str, SetupValue]
    outcomes: Sequence[Outcome]


def repeated_in(records: Sequence[RunRecord]) -> list[Repeated]:
    """Setups that came more than once, seeds apart, on the same machine."""
    found: dict[tuple[object, ...], list[PointRecord]] = {}
    for record in records:
        for point in record.points:
            setup = tuple(sorted((k, v) for k, v in point.setup.items() if k not in NOT_SETUP))
            found.setdefault((record.source, record.target, record.machine.model, setup), []).append(point)
    return [
        Repeated(points[0].setup, [Outcome(point) for point in points]) for points in found.values() if len(points) > 1
    ]


def occupancy_panels(records: Sequence[RunRecord]) -> list[Panel]:
    """Runs along different axes have one in common: how full the pool was."""
    runs = [(record, [Outcome(point) for point in record.points]) for record in records if record.axis]
    runs = [(record, outcomes) for record, outcomes in runs if all(o.kv_peak for o in outcomes) and len(outcomes) > 1]
    if len({record.axis for record, _ in runs}) < 2:
        return []

    def draw_of(axes: Axes, value: Value, unit: str) -> None:
        names: list[tuple[float, float, str, str]] = []
        for (record, outcomes), colour in zip(runs, COLOURS, strict=False):
            shown = sorted(outcomes, key=lambda outcome: outcome.kv_peak or 0.0)
            xs, ys = [100 * (o.kv_peak or 0.0) for o in shown], [value(o) for o in shown]
            axes.plot(xs, ys, "o-", color=colour, label=f"{record.name}, by {over_name(record.axis)}")
            words = [f"{outcome.setup.get(record.axis, '')}" for outcome in shown]
            names += [(x, y, word, colour) for x, y, word in zip(xs, ys, words, strict=True)][::-1]
        name_apart(axes, names)
        axes.set_ylim(bottom=0)
        axes.margins(x=0.08, y=0.15)
        label(axes, "KV in use at the peak, % of the pool", unit)

    return [
        Panel("Output over KV occupancy", lambda axes: draw_of(axes, lambda o: o.output_s, "output tokens/s")),
        Panel("All tokens over KV occupancy", lambda axes: draw_of(axes, lambda o: o.total_s, "tokens/s")),
    ]


def repeated_panel(records: Sequence[RunRecord]) -> Panel | None:
    """How far each repetition lies off the mean of its setup."""
    found = repeated_in(records)
    if not found:
        return None

    def draw(axes: Axes) -> None:
        for place, (_, _, value) in enumerate(COMPARED):
            offsets: list[float] = []
            for same in found:
                values = [value(outcome) for outcome in same.outcomes]
                average = sum(values) / len(values)
                offsets += [100 * (one / average - 1) for one in values if average]
            axes.scatter([place] * len(offsets), offsets, s=20, color=BLUE, alpha=0.6, linewidths=0)
        axes.axhline(0, color=TEAL, linewidth=0.8)
        axes.set_xticks(range(len(COMPARED)), [name for name, _, _ in COMPARED])
        axes.set_xlim(-0.5, len(COMPARED) - 0.5)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, -1.0), max(high, 1.0))
        label(axes, "", "% off the mean of the same setup", legend=False)

    return Panel("Repeatability", draw)


def comparison_panels(records: Sequence[RunRecord]) -> list[Panel]:
    """Runs over the same axis as curves, single points as bars."""
    if len(records) < 2:
        return []
    if len({record.axis for record in records}) == 1:
        series = [(record, found) for record in records if (found := first_series(record))]
        if len(series) == len(records):
            return [
                _curves(title, unit, value, [(r, ordered(s, r.axis)) for r, s in series])
                for title, unit, value in COMPARED
            ]
        if all(len(record.points) == 1 for record in records):
            return [_bars(title, unit, value, records) for title, unit, value in COMPARED]
    return []


def names_of(records: Sequence[RunRecord]) -> list[str]:
    """What tells them apart: their names, or else also where they ran, or else their place."""
    for told in (
        [record.name for record in records],
        [record.target for record in records],
        [f"{record.name}, {record.target}" for record in records],
    ):
        if len(set(told)) == len(told):
            return told
    return [f"{record.name} ({place})" for place, record in enumerate(records, start=1)]


def _curves(title: str, unit: str, value: Value, runs: Sequence[tuple[RunRecord, Sequence[Outcome]]]) -> Panel:
    names = names_of([record for record, _ in runs])

    def draw(axes: Axes) -> None:
        for (record, outcomes), name, colour in zip(runs, names, COLOURS, strict=False):
            xs = [at(outcome, record.axis) for outcome in outcomes]
            axes.plot(xs, [value(outcome) for outcome in outcomes], "o-", color=colour, label=name)
        axes.set_ylim(bottom=0)
        places(axes, [at(outcome, record.axis) for record, outcomes in runs for outcome in outcomes])
        label(axes, over_name(runs[0][0].axis), unit)

    return Panel(title, draw)


def _bars(title: str, unit: str, value: Value, records: Sequence[RunRecord]) -> Panel:
    names = names_of(records)

    def draw(axes: Axes) -> None:
        values = [value(Outcome(record.points[0])) for record in records]
        bars = axes.barh(names, values, 0.6, color=[COLOURS[i % len(COLOURS)] for i in range(len(records))])
        axes.bar_label(bars, [f"{one:,.4g}" for one in values], padding=3, fontsize=8)
        axes.set_xlim(0, 1.18 * max([*values, 1e-9]))
        axes.invert_yaxis()
        label(axes, unit, "", legend=False)

    return Panel(title, draw)
