"""The same metrics for a registry of `prometheus_client`, for whoever wants to look one up or list them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from lorikeet_engine.metrics.families import Family
from lorikeet_engine.metrics.shapes import HistogramFamily


class EngineCollector(Collector):
    """Exports what `told` says at every scrape."""

    def __init__(self, told: Callable[[], Iterable[Family]], registry: CollectorRegistry) -> None:
        self._told = told
        registry.register(self)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for family in self._told():
            yield family.metric() if isinstance(family, HistogramFamily) else family
