"""What the engine's /metrics says is what its figures say."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from lorikeet_engine.metrics import POOL_STATES, EngineCollector
from tests.support.engine_figures import A_POOL, engine_stats

POOLS = ("kv", "adapters", "host", "swap")


def registry() -> CollectorRegistry:
    collected = CollectorRegistry()
    EngineCollector(engine_stats, collected)
    return collected


def value(name: str, **labels: str) -> float | None:
    return registry().get_sample_value(f"lorikeet_{name}", labels)


def test_every_pool_adds_up_by_state_and_by_tenant() -> None:
    for pool in POOLS:
        by_state = {state: value("pool_bytes", pool=pool, state=state) or 0 for state in POOL_STATES}
        by_tenant = [value("tenant_pool_bytes", pool=pool, tenant=tenant) or 0 for tenant in ("anna", "ben")]
        assert sum(by_state.values()) == A_POOL.capacity
        assert sum(by_tenant) + by_state["free"] == A_POOL.capacity
        assert value("pool_shared_bytes", pool=pool) == 64
        assert value("pool_fragmentation_bytes", pool=pool, kind="internal") == 7
        assert value("pool_fragmentation_bytes", pool=pool, kind="external") == 9


def test_queues_are_shown_by_tenant_and_fairness_as_one_number() -> None:
    assert (value("tenant_waiting_requests", tenant="anna"), value("tenant_running_requests", tenant="anna")) == (1, 2)
    assert value("engine_service_spread") == 60
    assert [value(f"engine_{name}") for name in ("seats", "max_seats", "swapped_requests")] == [28, 32, 3]
    assert value("engine_unsettled_requests") == 17


def test_prefixes_adapters_and_pressure_are_counted_by_reason() -> None:
    assert (value("prefix_queried_tokens_total"), value("prefix_hit_tokens_total")) == (200, 100)
    assert value("prefix_misses_total", reason="salt") == 1
    assert (value("adapters", state="resident"), value("adapters", state="draining")) == (1, 0)
    assert value("adapter_loads_total", tier="host") == 6
    assert value("adapter_evictions_total", reason="room") == 4
    assert value("preemptions_total", mode="wait") == 8
    assert (value("recomputed_tokens_total"), value("swap_bytes_total", direction="out")) == (33, 640)
    assert (value("refusals_total", reason="tenant_queue"), value("expired_requests_total")) == (11, 13)


def test_work_and_time_are_kept_apart_by_kind_of_step() -> None:
    assert value("engine_step_seconds_total", kind="prefill") == 0.4
    assert (value("estimated_flops_total", kind="decode"), value("estimated_flops_total", kind="prefill")) == (
        1e12,
        6e12,
    )
    assert value("estimated_lora_read_bytes_total", kind="decode") == 4e9


def test_tenants_label_queues_and_pools_only_and_adapters_nothing() -> None:
    samples = [sample for family in registry().collect() for sample in family.samples]
    assert {sample.name for sample in samples if "tenant" in sample.labels} == {
        "lorikeet_tenant_waiting_requests",
        "lorikeet_tenant_running_requests",
        "lorikeet_tenant_pool_bytes",
    }
    digests = {adapter.digest for adapter in engine_stats().adapters}
    assert not [sample for sample in samples if digests & set(sample.labels.values())]
