"""The two machines in one: prefill and decode against the roof of the device, never averaged."""

from __future__ import annotations

from matplotlib.axes import Axes

from lorikeet_engine.experiments.measures import Outcome, Peaks, peaks_of
from lorikeet_engine.experiments.record import RunRecord
from lorikeet_platform.tools.bench.report.page import (
    BLUE,
    GREY,
    INK,
    KINDS,
    TEAL,
    Panel,
    label,
    number,
    over_name,
    places,
)
from lorikeet_platform.tools.bench.report.panels.points import at, first_series, ordered

COMPUTING = ("prefill", "mixed", "decode")
LEAST_SHARE = 0.002  # of the time; what happened in a blink says nothing


def device_panels(record: RunRecord) -> list[Panel]:
    peaks = peaks_of(record.machine)
    outcomes = [Outcome(point) for point in record.points if point.readings and point.readings[-1].flops]
    if peaks is None or not outcomes:
        return []
    panels = [roof_panel(outcomes, peaks)]
    series = first_series(record)
    if series is not None and all(o.point.readings for o in series.outcomes):
        shown = ordered(series, record.axis)
        panels += [
            _over_axis("MFU by kind of step", record.axis, shown, peaks, is_compute=True),
            _over_axis("MBU by kind of step", record.axis, shown, peaks, is_compute=False),
            time_panel(record.axis, shown),
        ]
    else:
        panels.append(bars_panel(outcomes[-1], peaks))
    return panels


def roof_panel(outcomes: list[Outcome], peaks: Peaks) -> Panel:
    def draw(axes: Axes) -> None:
        ridge = peaks.peak_flops / peaks.peak_bandwidth
        shown = [
            (kind, phase.intensity, phase.flops_s)
            for outcome in outcomes
            for kind, phase in outcome.window.phases.items()
            if kind in COMPUTING and phase.flops_s and phase.seconds >= LEAST_SHARE * outcome.point.seconds
        ]
        low = min([ridge, *(x for _, x, _ in shown)]) / 3
        high = max([ridge, *(x for _, x, _ in shown)]) * 3
        roof = [min(peaks.peak_flops, peaks.peak_bandwidth * x) / 1e12 for x in (low, ridge, high)]
        axes.plot([low, ridge, high], roof, color=INK, linewidth=1.2)
        axes.axvline(ridge, color=GREY, linewidth=0.8, linestyle="--")
        axes.annotate(
            f"ridge {number(ridge)}", (ridge, 0.5), xycoords=("data", "axes fraction"), xytext=(4, 0),
            textcoords="offset points", fontsize=8, color=INK,
        )  # fmt: skip
        for kind in COMPUTING:
            points = [(x, y) for name, x, y in shown if name == kind]
            if points:
                xs, ys = [x for x, _ in points], [y / 1e12 for _, y in points]
                span = number(min(xs)) + (f" … {number(max(xs))}" if len(xs) > 1 else "")
                axes.scatter(xs, ys, s=26, color=KINDS[kind], label=f"{kind}: {span}", zorder=3)
        axes.set_xscale("log")
        axes.set_yscale("log")
        label(axes, "FLOP for each byte read", "TFLOP/s")

    return Panel("Intensity against the ridge", draw)


def time_panel(axis: str, outcomes: list[Outcome]) -> Panel:
    def draw(axes: Axes) -> None:
        names = [f"{at(outcome, axis):,g}" for outcome in outcomes]
        bottom = [0.0] * len(outcomes)
        for kind in COMPUTING:
            phases = [outcome.window.phases.get(kind) for outcome in outcomes]
            shares = [
                100 * (phase.seconds if phase else 0.0) / outcome.point.seconds
                for phase, outcome in zip(phases, outcomes, strict=True)
            ]
            axes.bar(names, shares, 0.6, bottom=bottom, color=KINDS[kind], label=kind)
            bottom = [low + share for low, share in zip(bottom, shares, strict=True)]
        axes.set_ylim(0, 118)
        axes.set_yticks([0, 25, 50, 75, 100])
        label(axes, over_name(axis), "% of the time", columns=3)

    return Panel("Time by kind of step", draw)


def bars_panel(outcome: Outcome, peaks: Peaks) -> Panel:
    def draw(axes: Axes) -> None:
        phases = {kind: outcome.window.phases[kind] for kind in COMPUTING if kind in outcome.window.phases}
        for offset, (name, colour) in enumerate((("MFU", BLUE), ("MBU", TEAL))):
            values = [100 * (phase.mbu(peaks) if offset else phase.mfu(peaks)) for phase in phases.values()]
            bars = axes.bar(
                [i + (offset - 0.5) * 0.36 for i in range(len(phases))], values, 0.36, color=colour, label=name
            )
            axes.bar_label(bars, [f"{value:.1f}" for value in values], padding=2, fontsize=8)
        axes.set_xticks(range(len(phases)), list(phases))
        axes.set_ylim(0, 115)
        label(axes, "", "% of the peak", columns=2)

    return Panel("Use of the device, by kind of step", draw)


def _over_axis(title: str, axis: str, outcomes: list[Outcome], peaks: Peaks, *, is_compute: bool) -> Panel:
    def draw(axes: Axes) -> None:
        for kind in COMPUTING:
            found = [(at(o, axis), o.window.phases[kind]) for o in outcomes if kind in o.window.phases]
            shown = [(x, phase) for x, phase in found if phase.seconds]
            values = [100 * (phase.mfu(peaks) if is_compute else phase.mbu(peaks)) for _, phase in shown]
            if shown:
                axes.plot([x for x, _ in shown], values, "o-", color=KINDS[kind], label=kind)
        axes.set_ylim(0, 115)
        places(axes, [at(outcome, axis) for outcome in outcomes])
        label(axes, over_name(axis), "% of the peak, while such steps ran", columns=3)

    return Panel(title, draw)
