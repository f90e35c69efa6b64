"""The same metrics for a registry of `prometheus_client`, for whoever wants to look one up or list them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from lorikeet_engine.cost import DeviceProfile
from lorikeet_engine.metrics.families import families, peaks
from lorikeet_engine.metrics.shapes import HistogramFamily
from lorikeet_engine.stats import EngineStats


class EngineCollector(Collector):
    """Exports one engine's `EngineStats`, and the peaks of its device."""

    def __init__(self, stats: Callable[[], EngineStats], device: DeviceProfile, registry: CollectorRegistry) -> None:
        self._stats, self._device = stats, device
        registry.register(self)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for family in (*families(self._stats()), *peaks(self._device)):
            yield family.metric() if isinstance(family, HistogramFamily) else family
