"""One histogram of seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from lorikeet_engine.latency_bounds import BOUNDS_S


class Histogram:
    """How often something took how long; `counts[i]` up to `BOUNDS_S[i]`, the last one longer."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float, n: int = 1) -> None:
        """`n` times something took so long."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += n
        self.sum_s += n * seconds

    @staticmethod
    def add_to_all(histograms: Iterable[Histogram], seconds: float, n: int) -> None:
        """As `add` to each of them."""
        i, sum_s = bisect_left(BOUNDS_S, seconds), n * seconds
        for histogram in histograms:
            histogram.counts[i] += n
            histogram.sum_s += sum_s

    def merge(self, other: Histogram) -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s

    @property
    def total(self) -> int:
        return sum(self.counts)
