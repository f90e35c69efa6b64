"""The engine's Prometheus metrics, read from its latest figures when somebody scrapes.

Nothing is counted twice: the loop and the ledgers hold the numbers, this module names them. Tenants are labels of
queues and pools only, adapters of nothing: an engine may know thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lorikeet_engine.stats import EngineStats

POOL_STATES = ("used", "reserved", "in_flight", "cached", "free")
RESIDENCIES = ("cold", "loading", "host", "placing", "resident", "draining")


class EngineCollector(Collector):
    """Exports one engine's `EngineStats`."""

    def __init__(self, stats: Callable[[], EngineStats], registry: CollectorRegistry) -> None:
        self._stats = stats
        registry.register(self)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        yield from _engine(stats)
        yield from _tenants(stats)
        yield from _pools(stats)
        yield from _prefix(stats)
        yield from _adapters(stats)
        yield from _pressure(stats)
        yield from _work(stats)


def _engine(stats: EngineStats) -> Iterator[Metric]:
    yield _gauge("engine_uptime_seconds", "Seconds since the engine started", stats.uptime_s)
    yield _gauge("engine_running_requests", "Requests in the running batch", stats.running)
    yield _gauge("engine_waiting_requests", "Requests in the queue", stats.waiting)
    yield _gauge("engine_swapped_requests", "Preempted requests whose KV blocks lie in host memory", stats.swapped)
    yield _gauge("engine_seats", "Requests that may run now", stats.seats)
    yield _gauge("engine_max_seats", "Requests that may run without memory pressure", stats.max_seats)
    yield _gauge("engine_unsettled_requests", "Ended requests whose use is not on record yet", stats.unsettled)
    yield _counter("engine_prompt_tokens", "Prompt tokens computed", stats.prompt_tokens_total)
    yield _counter("engine_generated_tokens", "Tokens sampled", stats.generated_tokens_total)
    yield _counters("engine_steps", "Steps by what they computed", "kind", stats.steps_by_kind)
    yield _counters("engine_step_seconds", "Time that steps took, by kind", "kind", stats.step_seconds_by_kind)
    yield _gauge("engine_step_time_error_ratio", "Relative error of the step-time model", stats.step_time_error)
    yield _gauge("engine_ttft_error_seconds", "Error of predicted times to the first token", stats.ttft_error_s)


def _tenants(stats: EngineStats) -> Iterator[Metric]:
    waiting = {load.tenant: load.waiting for load in stats.tenants}
    running = {load.tenant: load.running for load in stats.tenants}
    service = [load.service for load in stats.tenants] or [0.0]
    yield _gauges("tenant_waiting_requests", "Requests in the queue by tenant", "tenant", waiting)
    yield _gauges("tenant_running_requests", "Requests in the running batch by tenant", "tenant", running)
    yield _gauge(
        "engine_service_spread", "Weighted tokens between most and least served tenant", max(service) - min(service)
    )


def _pools(stats: EngineStats) -> Iterator[Metric]:
    by_state = GaugeMetricFamily(
        "lorikeet_pool_bytes", "Bytes of a memory pool by state; the states add up", labels=["pool", "state"]
    )
    by_tenant = GaugeMetricFamily(
        "lorikeet_tenant_pool_bytes", "Bytes of a memory pool that a tenant holds", labels=["pool", "tenant"]
    )
    fragmentation = GaugeMetricFamily(
        "lorikeet_pool_fragmentation_bytes",
        "Bytes that cannot be used: held inside allocations, or free outside the largest free run",
        labels=["pool", "kind"],
    )
    ledgers = (stats.kv, stats.arena, stats.host, stats.swap)
    for ledger in ledgers:
        for state in POOL_STATES:
            by_state.add_metric([ledger.name, state], getattr(ledger, state))
        for tenant, held in ledger.by_tenant.items():
            by_tenant.add_metric([ledger.name, tenant], held)
        fragmentation.add_metric([ledger.name, "internal"], ledger.fragmentation)
        fragmentation.add_metric([ledger.name, "external"], ledger.external_fragmentation)
    yield by_state
    yield by_tenant
    yield fragmentation
    yield _gauges(
        "pool_shared_bytes",
        "Bytes that several requests use at once",
        "pool",
        {ledger.name: ledger.shared for ledger in ledgers},
    )


def _prefix(stats: EngineStats) -> Iterator[Metric]:
    prefix = stats.prefix
    queried = sum(use.queried_tokens for use in prefix.uses)
    hit = sum(use.hit_tokens for use in prefix.uses)
    yield _counter("prefix_queried_tokens", "Prompt tokens looked up in the prefix cache", queried)
    yield _counter("prefix_hit_tokens", "Prompt tokens found in the prefix cache", hit)
    yield _counter(
        "prefix_recomputed_hit_tokens", "Tokens found again after a preemption", prefix.recomputed_hit_tokens
    )
    yield _counters("prefix_misses", "Prompts by why their first missing block was missing", "reason", prefix.misses)


def _adapters(stats: EngineStats) -> Iterator[Metric]:
    traffic = stats.adapter_traffic
    states = Counter(dict.fromkeys(RESIDENCIES, 0))
    states.update(adapter.state for adapter in stats.adapters)
    yield _gauges("adapters", "Adapters the engine knows, by residency", "state", states)
    yield _counters("adapter_loads", "Adapters brought into the arena, by where they came from", "tier", traffic.loads)
    yield _counters("adapter_evictions", "Adapters dropped from the arena, by reason", "reason", traffic.evictions)
    yield _counter("adapter_stall_seconds", "Time that requests waited for nothing but their adapter", traffic.stall_s)
    yield _gauge("adapter_longest_wait_seconds", "The longest such wait so far", traffic.longest_wait_s)


def _pressure(stats: EngineStats) -> Iterator[Metric]:
    preemptions = stats.preemptions
    yield _counters("preemptions", "Times that KV blocks ran out, by the answer", "mode", preemptions.by_mode)
    yield _counter("recomputed_tokens", "Tokens computed again after preemptions", preemptions.recomputed_tokens)
    yield _counters("swap_bytes", "KV bytes copied to and from host memory", "direction", preemptions.swap_bytes)
    yield _counters("refusals", "Requests not taken, by reason", "reason", stats.refusals)
    yield _counter("expired_requests", "Requests dropped from the queue at their deadline", stats.expired)


def _work(stats: EngineStats) -> Iterator[Metric]:
    work = stats.work_by_kind.items()
    for name, text, by_kind in (
        ("estimated_flops", "Floating point operations, adapters included", {k: w.flops for k, w in work}),
        ("estimated_lora_flops", "Floating point operations of adapters", {k: w.lora_flops for k, w in work}),
        ("estimated_read_bytes", "Bytes read by steps, adapters included", {k: w.read_bytes for k, w in work}),
        ("estimated_write_bytes", "Bytes of keys and values written", {k: w.write_bytes for k, w in work}),
        ("estimated_lora_read_bytes", "Bytes of adapters read by steps", {k: w.lora_bytes for k, w in work}),
    ):
        yield _counters(name, text, "kind", by_kind)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"lorikeet_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"lorikeet_{name}", text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"lorikeet_{name}", text, labels=[label])
    for value, amount in values.items():
        family.add_metric([value], amount)
    return family


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"lorikeet_{name}", text, labels=[label])
    for value, amount in values.items():
        family.add_metric([value], amount)
    return family
