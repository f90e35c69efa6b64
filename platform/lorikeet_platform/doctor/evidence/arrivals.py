"""How evenly requests come: what burstiness there is between the watch's samples."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pvariance
from typing import Final

from lorikeet_engine.stats import EngineStats, Histogram
from lorikeet_platform.engine_watch.window import Window

LEAST_INTERVALS: Final = 6


def dispersion(window: Window) -> float | None:
    """Variance over mean of arrivals between two samples: 1 for independent ones, more for bursts."""
    arrivals = [_arrived(after.stats) - _arrived(before.stats) for before, after in pairwise(window.readings)]
    mean = fmean(arrivals) if len(arrivals) >= LEAST_INTERVALS else 0.0
    return pvariance(arrivals, mean) / mean if mean > 0 else None


def _arrived(stats: EngineStats) -> int:
    """Begun, waiting, refused or given up: all that ever came, whatever became of it."""
    begun = sum(sum(histogram.counts) for histogram in stats.histograms if _is_queue(histogram))
    return begun + stats.waiting + sum(stats.refusals.values()) + stats.expired


def _is_queue(histogram: Histogram) -> bool:
    return histogram.measure == "queue" and histogram.by == "kind"
