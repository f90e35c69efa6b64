"""One point's latencies: percentiles, the gaps between tokens, tenants."""

from __future__ import annotations

from matplotlib.axes import Axes

from lorikeet_engine.experiments.measures import Outcome
from lorikeet_platform.tools.bench.report.page import BLUE, COLOURS, GREY, ORANGE, PURPLE, TEAL, Panel, label, number
from lorikeet_platform.tools.bench.summary import METRICS, OUTCOMES, summarise

MOST_TENANTS = 12
BINS = 60
LEAST_S = 1e-6
SHARES = (0.5, 0.9, 0.99)
OUTCOME_COLOURS = dict(zip(OUTCOMES, (TEAL, GREY, PURPLE, ORANGE, COLOURS[4]), strict=True))


def percentiles_panel(outcome: Outcome) -> Panel | None:
    latencies = [latency for latency in summarise(outcome.point, shares=SHARES).latencies if latency.count]
    if not latencies:
        return None

    def draw(axes: Axes) -> None:
        for offset, (share, colour) in enumerate(zip(SHARES, (BLUE, TEAL, ORANGE), strict=True)):
            values = [max(1000 * latency.percentiles[share], 1e-3) for latency in latencies]
            at = [i + (offset - 1) * 0.28 for i in range(len(latencies))]
            bars = axes.bar(at, values, 0.27, color=colour, label=f"p{100 * share:g}")
            axes.bar_label(bars, [number(value) for value in values], padding=1, fontsize=6.5)
        axes.set_xticks(range(len(latencies)), [latency.metric.upper() for latency in latencies])
        axes.set_yscale("log")
        axes.margins(y=0.25)
        label(axes, "", "milliseconds", columns=3)

    return Panel(f"Latency: {', '.join(metric.upper() for metric in METRICS)}", draw)


def split_panel(outcome: Outcome) -> Panel | None:
    """Queue, prefill, and what is neither: the way there and back, the gateway, the generator."""
    parts = split_of(outcome)
    if parts is None:
        return None
    queue_s, prefill_s = parts
    rest_s = max(0.0, outcome.mean_ttft - queue_s - prefill_s)
    rows = [("in the queue", queue_s, ORANGE), ("from its start to\nthe first token", prefill_s, BLUE)]
    rows += [("outside of\nthe engine", rest_s, GREY)] if rest_s > LEAST_S else []

    def draw(axes: Axes) -> None:
        values = [1000 * seconds for _, seconds, _ in rows]
        bars = axes.barh([name for name, _, _ in rows], values, color=[colour for *_, colour in rows], height=0.6)
        axes.bar_label(bars, [number(value) for value in values], padding=4, fontsize=8)
        axes.set_xlim(0, 1.15 * max([*values, 1e-6]))
        axes.invert_yaxis()
        label(axes, "milliseconds, mean", "", legend=False)

    return Panel(f"Where the time to the first token goes: {number(1000 * outcome.mean_ttft)} ms", draw)


def split_of(outcome: Outcome) -> tuple[float, float] | None:
    """Mean seconds in the queue and in prefill: of the requests, where they tell, or else of the engine's counters."""
    served, readings = outcome.served, outcome.point.readings
    if served and all(request.queue_s is not None for request in served):
        return outcome.mean_queue, outcome.mean_ttft - outcome.mean_queue
    if len(readings) < 2:
        return None
    first, last = readings[0], readings[-1]
    if first.first_tokens is None or last.first_tokens is None or last.first_tokens <= first.first_tokens:
        return None
    n = last.first_tokens - first.first_tokens
    queue_s = (last.queue_seconds or 0.0) - (first.queue_seconds or 0.0)
    return queue_s / n, ((last.prefill_seconds or 0.0) - (first.prefill_seconds or 0.0)) / n


def gaps_panel(outcome: Outcome) -> Panel | None:
    """How the gaps between tokens are spread."""
    gaps = [(1000 * seconds, n) for seconds, n in outcome.point.gaps if seconds > 1e-6]
    if not gaps:
        return None

    def draw(axes: Axes) -> None:
        low, high = gaps[0][0], max(gaps[-1][0], 1.1 * gaps[0][0])
        edges = [low * (high / low) ** (i / BINS) for i in range(BINS + 1)]
        axes.hist([ms for ms, _ in gaps], bins=edges, weights=[n for _, n in gaps], color=BLUE)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for share, colour in ((0.5, TEAL), (0.99, ORANGE)):
            at = 1000 * outcome.gap_at(share)
            axes.axvline(at, color=colour, linewidth=1, label=f"p{100 * share:g}: {number(at)} ms")
        label(axes, "milliseconds", "gaps")

    return Panel("Gaps between tokens", draw)


def tenants_panel(outcome: Outcome) -> Panel | None:
    """What became of each tenant's requests."""
    requests = outcome.point.requests
    names = {request.tenant for request in requests}
    kinds = {request.outcome for request in requests}
    if len(names) < 2 and len(kinds) < 2:
        return None
    counts = {name: [request.outcome for request in requests if request.tenant == name] for name in names}
    shown = sorted(names, key=lambda name: (-len(counts[name]), name))[:MOST_TENANTS]

    def draw(axes: Axes) -> None:
        left = [0.0] * len(shown)
        for kind in OUTCOMES:
            values = [float(counts[name].count(kind)) for name in shown]
            if any(values):
                axes.barh(shown, values, left=left, color=OUTCOME_COLOURS[kind], label=kind)
                left = [low + value for low, value in zip(left, values, strict=True)]
        axes.invert_yaxis()
        axes.margins(x=0.25)
        label(axes, "requests", "")

    return Panel(
        "Requests by tenant" if len(names) <= MOST_TENANTS else f"Requests of the {MOST_TENANTS} busiest", draw
    )
