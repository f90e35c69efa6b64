"""Quantiles of a window's latencies, from the difference of two histograms.

Within a bin values are taken to be spread evenly, so a quantile is right to its bin's width (`BOUNDS_S`: 5 ms at 10 ms,
50 ms at 100 ms, a quarter second at half a second). Above the last bound it is that bound, a lower limit.
"""

from __future__ import annotations

from typing import Literal, get_args

from lorikeet_engine.stats import BOUNDS_S
from lorikeet_platform.engine_watch.schemas import Latency, Measure
from lorikeet_platform.engine_watch.window import Spread, Window

Kind = Literal["base", "adapter", "all"]


def latencies(window: Window) -> list[Latency]:
    """Of every measure and kind of request that the window has any of."""
    found = []
    for measure in get_args(Measure):
        for kind in get_args(Kind):
            spread = spread_of(window, measure, kind)
            if spread.count:
                found.append(_latency(measure, kind, spread))
    return found


def spread_of(window: Window, measure: Measure, kind: Kind = "all") -> Spread:
    return window.spread(measure, by="kind", label=None if kind == "all" else kind)


def quantile(spread: Spread, share: float) -> float:
    """The time that `share` of the cases did not exceed; 0 without any case."""
    wanted, seen = share * spread.count, 0
    for i, n in enumerate(spread.counts):
        if n and seen + n >= wanted:
            if i >= len(BOUNDS_S):
                break
            low = BOUNDS_S[i - 1] if i else 0.0
            return low + (BOUNDS_S[i] - low) * (wanted - seen) / n
        seen += n
    return BOUNDS_S[-1] if spread.count else 0.0


def _latency(measure: Measure, kind: Kind, spread: Spread) -> Latency:
    p50, p90, p99 = (quantile(spread, share) for share in (0.5, 0.9, 0.99))
    return Latency(measure=measure, kind=kind, count=spread.count, mean=spread.mean_s, p50=p50, p90=p90, p99=p99)
