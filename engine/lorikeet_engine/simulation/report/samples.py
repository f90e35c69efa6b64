"""Samples that are too many to keep: a histogram with narrow bins, and percentiles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

BINS_PER_E = 2000  # a bin is 0.05 % wide


class Gaps:
    """Times between tokens. Whole batches wait equally long, so the last bin is remembered."""

    __slots__ = ("_last", "_last_bin", "bins", "total_s")

    def __init__(self) -> None:
        self.bins: Counter[int] = Counter()
        self.total_s = 0.0
        self._last = -1.0
        self._last_bin = 0

    def add(self, seconds: float) -> None:
        if seconds != self._last:
            self._last = seconds
            self._last_bin = round(math.log(max(seconds, 1e-9)) * BINS_PER_E)
        self.bins[self._last_bin] += 1
        self.total_s += seconds

    def merge(self, others: Iterable[Gaps]) -> Gaps:
        for other in others:
            self.bins.update(other.bins)
            self.total_s += other.total_s
        return self

    def __len__(self) -> int:
        return self.bins.total()

    def percentile(self, share: float) -> float:
        """The smallest gap that `share` of the gaps do not exceed, to the width of a bin; 0 without gaps."""
        rank = math.ceil(share * len(self))
        for bin_, n in sorted(self.bins.items()):
            rank -= n
            if rank <= 0:
                return math.exp(bin_ / BINS_PER_E)
        return 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values, between neighbours in proportion; 0 without values."""
    if not ordered:
        return 0.0
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def distribution(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {"mean": mean(ordered)} | {name: percentile(ordered, share) for name, share in shares.items()}


def gap_distribution(gaps: Gaps) -> dict[str, float]:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    average = gaps.total_s / len(gaps) if len(gaps) else 0.0
    return {"mean": average} | {name: gaps.percentile(share) for name, share in shares.items()}
