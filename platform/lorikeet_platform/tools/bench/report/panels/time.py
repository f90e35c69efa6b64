"""One point as time went on: memory and requests, the opening seconds, use of the device, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from lorikeet_engine.experiments.measures import Outcome, Window, peaks_of, window_between
from lorikeet_engine.experiments.record import Machine, Reading
from lorikeet_platform.tools.bench.report.page import (
    BLUE,
    GREY,
    KINDS,
    ORANGE,
    TEAL,
    Panel,
    from_zero,
    label,
    whole_numbers,
)

MOST_WINDOWS = 120
OPENING_BARS = 10
UNITS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def windows_of(readings: Sequence[Reading]) -> list[tuple[float, Window]]:
    """At most so many, each with its middle; two neighbouring readings may be too close for a rate."""
    step = max(1, len(readings) // MOST_WINDOWS)
    kept = [*readings[:-1:step], readings[-1]]
    pairs = [(before, after) for before, after in pairwise(kept) if after.at_s > before.at_s]
    return [((before.at_s + after.at_s) / 2, window_between(before, after)) for before, after in pairs]


def memory_panel(outcome: Outcome) -> Panel | None:
    readings = [reading for reading in outcome.point.readings if reading.kv_used is not None]
    if len(readings) < 3:
        return None

    def draw(axes: Axes) -> None:
        times = [reading.at_s for reading in readings]
        parts = (("used", BLUE, "kv_used"), ("promised", TEAL, "kv_reserved"), ("cached", GREY, "kv_cached"))
        known = [part for part in parts if getattr(readings[0], part[2]) is not None]
        values = [[100 * getattr(reading, field) for reading in readings] for _, _, field in known]
        axes.stackplot(times, *values, labels=[name for name, _, _ in known], colors=[c for _, c, _ in known])
        axes.set_ylim(0, 118)
        axes.set_yticks([0, 25, 50, 75, 100])
        label(axes, "seconds", "% of the pool", columns=3)

    return Panel("KV pool", draw)


def requests_panel(outcome: Outcome) -> Panel | None:
    """By the server's counters, or else as the generator saw them."""
    readings = outcome.point.readings

    def by_counters(axes: Axes) -> None:
        times = [reading.at_s for reading in readings]
        axes.plot(times, [reading.running for reading in readings], color=BLUE, label="running", drawstyle="steps-post")
        waiting = [reading.waiting for reading in readings]
        axes.plot(times, waiting, color=ORANGE, label="waiting", linewidth=0.9, drawstyle="steps-post")
        axes.set_ylim(0, 1.15 * max(1, *waiting, *(reading.running for reading in readings)))
        whole_numbers(axes)
        label(axes, "seconds", "requests", columns=2)

    def by_generator(axes: Axes) -> None:
        starts = [(request.sent_s, 1) for request in outcome.point.requests]
        ends = [(request.last_s, -1) for request in outcome.point.requests if request.last_s is not None]
        times, running = [0.0], [0]
        for moment, change in sorted([*starts, *ends], key=lambda change: (change[0], -change[1])):
            times.append(moment)
            running.append(running[-1] + change)
        axes.plot(times, running, color=BLUE, drawstyle="steps-post")
        axes.set_ylim(bottom=0)
        whole_numbers(axes)
        label(axes, "seconds", "requests under way", legend=False)

    if len(readings) > 2:
        return Panel("Requests in the engine", by_counters)
    return Panel("Requests under way", by_generator) if outcome.point.requests else None


def opening_panel(outcome: Outcome) -> Panel | None:
    """Until nobody waits any more, if that is not at once."""
    readings = outcome.point.readings
    first_wait = next((i for i, reading in enumerate(readings) if reading.waiting), None)
    if first_wait is None:
        return None
    settled_s = next((reading.at_s for reading in readings[first_wait:] if not reading.waiting), readings[-1].at_s)
    if settled_s > 0.5 * outcome.point.seconds:
        return None
    unit_s = next((unit for unit in UNITS_S if unit * OPENING_BARS >= settled_s), UNITS_S[-1])
    moments = [unit_s * (i + 1) for i in range(OPENING_BARS) if unit_s * (i + 1) <= outcome.point.seconds]

    def draw(axes: Axes) -> None:
        seen = [outcome.reading_at(moment) for moment in moments]
        names = [f"{moment:g}" for moment in moments]
        running = [float(reading.running) for reading in seen]
        waiting = [float(reading.waiting) for reading in seen]
        axes.bar(names, running, 0.7, color=BLUE, label="running")
        axes.bar(names, waiting, 0.7, bottom=running, color=ORANGE, label="waiting")
        for place, (there, queued) in enumerate(zip(running, waiting, strict=True)):
            if there:
                axes.text(place, there / 2, f"{there:.0f}", ha="center", va="center", fontsize=8, color="white")
            if queued:
                axes.text(
                    place, there + queued / 2, f"{queued:.0f}", ha="center", va="center", fontsize=8, color="white"
                )
        from_zero(axes, max(map(sum, zip(running, waiting, strict=True))), room=1.2)
        whole_numbers(axes)
        label(axes, "seconds since the first request", "requests", columns=2)

    return Panel("The opening", draw)


def utilisation_panel(outcome: Outcome, machine: Machine) -> Panel | None:
    peaks, readings = peaks_of(machine), outcome.point.readings
    if peaks is None or len(readings) < 3 or not readings[-1].flops:
        return None

    def draw(axes: Axes) -> None:
        found = windows_of(readings)
        times = [middle for middle, _ in found]
        axes.plot(times, [100 * w.whole.mfu(peaks) for _, w in found], color=BLUE, label="MFU")
        axes.plot(times, [100 * w.whole.mbu(peaks) for _, w in found], color=TEAL, label="MBU")
        axes.set_ylim(0, 110)
        label(axes, "seconds", "% of the peak", columns=2)

    return Panel("Use of the device: compute and memory", draw)


def mix_panel(outcome: Outcome) -> Panel | None:
    readings = outcome.point.readings
    if len(readings) < 3 or not readings[-1].step_seconds:
        return None

    def draw(axes: Axes) -> None:
        found = windows_of(readings)
        kinds = [kind for kind in KINDS if any(kind in window.phases for _, window in found)]
        shares = [[100 * _share(kind, window) for _, window in found] for kind in kinds]
        axes.stackplot([middle for middle, _ in found], *shares, labels=kinds, colors=[KINDS[kind] for kind in kinds])
        axes.set_ylim(0, 118)
        axes.set_yticks([0, 25, 50, 75, 100])
        label(axes, "seconds", "% of the time", columns=4)

    return Panel("Steps by what they compute", draw)


def _share(kind: str, window: Window) -> float:
    """Of the window, or of the steps that ended in it where they began before."""
    busy_s = sum(phase.seconds for phase in window.phases.values())
    return window.phases[kind].seconds / max(window.seconds, busy_s) if kind in window.phases else 0.0


def tokens_panel(outcome: Outcome) -> Panel | None:
    readings = outcome.point.readings
    if len(readings) < 3:
        return None

    def draw(axes: Axes) -> None:
        found = windows_of(readings)
        axes.plot([middle for middle, _ in found], [window.output_s for _, window in found], color=BLUE)
        axes.set_ylim(bottom=0)
        label(axes, "seconds", "output tokens/s", legend=False)

    return Panel("Output", draw)


def first_tokens_panel(outcome: Outcome) -> Panel | None:
    """Each request's time to its first token, by when it was due."""
    served = [request for request in outcome.served if request.first_s is not None]
    if len(served) < 3:
        return None

    def draw(axes: Axes) -> None:
        waits = [(request.first_s or 0.0) - request.sent_s for request in served]
        axes.scatter([request.sent_s for request in served], waits, s=9, color=BLUE, alpha=0.6, linewidths=0)
        lost = [request.sent_s for request in outcome.point.requests if request.outcome not in ("ok", "aborted")]
        if lost:
            axes.scatter(lost, [0.0] * len(lost), s=14, color=ORANGE, marker="x", label="not served")
        axes.set_ylim(bottom=-0.02 * max(waits))
        label(axes, "due at, seconds", "TTFT, seconds")

    return Panel("First tokens, request by request", draw)
