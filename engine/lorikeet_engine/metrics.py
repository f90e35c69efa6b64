"""The engine's Prometheus metrics, read from its latest figures when somebody scrapes.

Nothing is counted twice: the loop and the ledgers hold the numbers, this module names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.protocol import EngineStats


class EngineCollector(Collector):
    """Exports one engine's `EngineStats`."""

    def __init__(self, stats: Callable[[], EngineStats], registry: CollectorRegistry) -> None:
        self._stats = stats
        registry.register(self)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        yield GaugeMetricFamily("lorikeet_engine_uptime_seconds", "Seconds since the engine started", stats.uptime_s)
        yield GaugeMetricFamily("lorikeet_engine_running_requests", "Requests in the running batch", stats.running)
        yield GaugeMetricFamily("lorikeet_engine_waiting_requests", "Requests in the queue", stats.waiting)
        yield CounterMetricFamily("lorikeet_engine_prompt_tokens", "Prompt tokens computed", stats.prompt_tokens_total)
        yield CounterMetricFamily("lorikeet_engine_generated_tokens", "Tokens sampled", stats.generated_tokens_total)
        steps = CounterMetricFamily("lorikeet_engine_steps", "Steps by what they computed", labels=["kind"])
        for kind, count in stats.steps_by_kind.items():
            steps.add_metric([kind], count)
        yield steps
        yield from self._pools(stats)

    def _pools(self, stats: EngineStats) -> Iterator[Metric]:
        pool_bytes = GaugeMetricFamily(
            "lorikeet_pool_bytes", "Bytes of a memory pool by state; the states add up", labels=["pool", "state"]
        )
        fragmentation = GaugeMetricFamily(
            "lorikeet_pool_fragmentation_bytes", "Bytes held inside allocations but not usable", labels=["pool"]
        )
        for ledger in (stats.kv, stats.arena):
            for state in MemoryState:
                pool_bytes.add_metric([ledger.name, state], getattr(ledger, state))
            fragmentation.add_metric([ledger.name], ledger.fragmentation)
        yield pool_bytes
        yield fragmentation
        adapters = GaugeMetricFamily("lorikeet_adapters", "Adapters the engine knows, by residency", labels=["state"])
        states = [adapter.state for adapter in stats.adapters]
        for residency in sorted(set(states)):
            adapters.add_metric([residency], states.count(residency))
        yield adapters
