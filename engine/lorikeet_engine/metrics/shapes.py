"""The forms that a metric can have here; the names get their prefix in this module alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lorikeet_engine.latency_bounds import BOUNDS_S

PREFIX = "lorikeet_"
FINE = tuple(range(len(BOUNDS_S) + 1))
COARSE = (*range(2, len(BOUNDS_S), 2), len(BOUNDS_S))  # every other bound, where there are many histograms
LABELS = (*(repr(bound) for bound in BOUNDS_S), "+Inf")


class Series(NamedTuple):
    """One histogram of a family; `counts` are cumulative."""

    counts: tuple[int, ...]
    sum_s: float


class HistogramFamily:
    """Histograms of seconds that differ in one label.

    Not a `Metric`, which makes an object for every bucket: there are thousands.
    """

    def __init__(self, name: str, text: str, label: str, bins: Sequence[int] = FINE) -> None:
        """`bins`: which of the bounds it has."""
        self.name = PREFIX + name
        self.text = text
        self.label = label
        self.buckets = tuple(LABELS[i] for i in bins)
        self._bins = bins
        self.series: dict[str, Series] = {}

    def add(self, label: str, counts: Sequence[int], sum_s: float) -> None:
        """`counts` as in `stats.Histogram`; what has one label is one histogram."""
        known = self.series.get(label)
        up_to = tuple(accumulate(counts))
        cumulative = tuple([up_to[i] for i in self._bins])
        if known:
            cumulative, sum_s = tuple(map(add, known.counts, cumulative)), known.sum_s + sum_s
        self.series[label] = Series(cumulative, sum_s)

    def metric(self) -> Metric:
        metric = HistogramMetricFamily(self.name, self.text, labels=[self.label])
        for label, (counts, sum_s) in self.series.items():
            metric.add_metric([label], list(zip(self.buckets, counts, strict=True)), sum_s)
        return metric


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value)


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value)


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=[label])
    for value, amount in values.items():
        family.add_metric([value], amount)
    return family


def counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=[label])
    for value, amount in values.items():
        family.add_metric([value], amount)
    return family
