"""What the engine's /metrics says is what its figures say."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from lorikeet_engine.cost_vector import COSTS
from lorikeet_engine.errors import REFUSAL_REASONS
from lorikeet_engine.memory.kv.prefix_index import MissReason
from lorikeet_engine.metrics import POOL_STATES, EngineCollector, families, process, render
from lorikeet_engine.stats import BOUNDS_S, MEASURES, EngineStats, PrefixStats, TenantLoad
from tests.support.engine_figures import A_POOL, adapter_use, engine_stats, histogram, resident
from tests.support.scripted_engine_parts import PROFILE

POOLS = ("kv", "adapters", "host", "swap")


def value(name: str, stats: EngineStats | None = None, /, **labels: str) -> float | None:
    collected = CollectorRegistry()
    EngineCollector(lambda: families(stats or engine_stats()), collected)
    return collected.get_sample_value(f"lorikeet_{name}", labels)


def exported(**changes: Any) -> list[Metric]:
    return list(text_string_to_metric_families(render(families(engine_stats(**changes))).decode()))


def test_every_pool_adds_up_by_state_and_by_tenant() -> None:
    for pool in POOLS:
        by_state = {state: value("pool_bytes", pool=pool, state=state) or 0 for state in POOL_STATES}
        by_tenant = [value("tenant_pool_bytes", pool=pool, tenant=tenant) or 0 for tenant in ("anna", "ben")]
        assert sum(by_state.values()) == A_POOL.capacity
        assert sum(by_tenant) + by_state["free"] == A_POOL.capacity
        assert value("pool_shared_bytes", pool=pool) == 64
        assert value("pool_fragmentation_bytes", pool=pool, kind="internal") == 7
        assert value("pool_fragmentation_bytes", pool=pool, kind="external") == 9
    assert value("kv_peak_bytes") == 350


def test_queues_are_shown_by_tenant_and_fairness_as_one_number() -> None:
    assert (value("tenant_waiting_requests", tenant="anna"), value("tenant_running_requests", tenant="anna")) == (1, 2)
    assert (value("engine_service_spread"), value("fairness_index")) == (60, 0.75)
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
    assert value("engine_read_bytes_per_token") == 9e12 / (40 + 48)


def test_tokens_of_a_step_are_those_it_computed_and_steps_that_compute_none_do_not_count() -> None:
    stats = engine_stats(steps_by_kind={"prefill": 2, "decode": 7, "mixed": 1, "copy": 50, "failed": 9})
    assert value("engine_tokens_per_step", stats) == (40 + 48) / (2 + 7 + 1)


def test_every_reason_has_its_series_before_it_happens() -> None:
    """A rate begins at the second sample, and a sum with a side that has none is nothing at all."""
    stats = engine_stats(refusals={}, prefix=PrefixStats(uses=[], misses={}, recomputed_hit_tokens=0))
    assert [value("refusals_total", stats, reason=reason) for reason in REFUSAL_REASONS] == [0] * len(REFUSAL_REASONS)
    assert [value("prefix_misses_total", stats, reason=reason) for reason in MissReason] == [0] * len(MissReason)
    assert value("refusals_total", reason="tenant_queue") == 11
    assert value("prefix_misses_total", reason="salt") == 1


def test_loads_blocks_and_pins_are_shown() -> None:
    assert (value("adapter_load_seconds_count", tier="disk"), value("adapter_load_seconds_count", tier="host")) == (
        2,
        1,
    )
    assert value("adapter_load_seconds_bucket", tier="disk", le="0.5") == 2
    assert (value("kv_allocated_blocks_total"), value("kv_evicted_blocks_total")) == (640, 21)
    assert value("pinned_adapters") == 3


def test_the_past_of_those_that_lost_their_names_is_in_no_series() -> None:
    past = [histogram("ttft", by, "former", 0.1, 0.2, 0.3) for by in ("tenant", "adapter")]
    families_read = exported(histograms=past, adapter_uses=[adapter_use("", tenant="former", tokens=13)])
    labels = {label for family in families_read for sample in family.samples for label in sample.labels.values()}
    assert "former" not in labels


def test_latencies_are_histograms_by_kind_by_tenant_and_by_adapter() -> None:
    assert [value("engine_ttft_seconds_bucket", kind="base", le=le) for le in ("0.03", "0.05", "0.25", "0.5")] == [
        *(0, 1, 1, 2)
    ]
    assert (value("engine_ttft_seconds_count", kind="adapter"), value("engine_ttft_seconds_sum", kind="base")) == (
        1,
        0.35,
    )
    assert value("tenant_ttft_seconds_count", tenant="anna") == 2
    assert value("tenant_ttft_seconds_count", tenant="other") == 1
    assert value("adapter_wait_seconds_count", adapter="ab") == 1
    assert value("engine_step_duration_seconds_bucket", kind="decode", le="120.0") == 2
    assert value("engine_step_duration_seconds_count", kind="decode") == 3


def test_every_measure_has_a_name_whether_it_was_counted_or_not() -> None:
    names = {family.name for family in families(engine_stats(histograms=[]))}
    assert {f"lorikeet_engine_{measure}_seconds" for measure in MEASURES} <= names
    assert {f"lorikeet_tenant_{measure}_seconds" for measure in MEASURES} <= names
    assert {"lorikeet_adapter_ttft_seconds", "lorikeet_adapter_wait_seconds"} <= names


def test_what_adapters_do_is_shown_for_the_busiest_by_the_head_of_their_digest() -> None:
    uses = [
        adapter_use("0123456789abcdef", tokens=5, stall_s=0.5),
        adapter_use("0123456789abffff", tenant="ben", tokens=7, read_bytes=10.0),
        adapter_use("", tenant="", tokens=11, evictions=3),
    ]
    stats = engine_stats(adapter_uses=uses)
    assert value("adapter_use_tokens_total", stats, adapter="0123456789ab") == 12
    assert value("adapter_use_tokens_total", stats, adapter="other") == 11
    assert value("adapter_use_stall_seconds_total", stats, adapter="0123456789ab") == 0.5
    assert value("adapter_use_read_bytes_total", stats, adapter="0123456789ab") == 10
    assert value("adapter_use_evictions_total", stats, adapter="other") == 3


def test_two_adapters_whose_digests_begin_alike_are_one_histogram() -> None:
    twins = [histogram("itl", "adapter", f"0123456789ab{end}", seconds) for end, seconds in (("c", 0.01), ("d", 3.0))]
    stats = engine_stats(histograms=twins)
    assert value("adapter_itl_seconds_bucket", stats, adapter="0123456789ab", le="2.5") == 1
    assert value("adapter_itl_seconds_count", stats, adapter="0123456789ab") == 2
    assert value("adapter_itl_seconds_sum", stats, adapter="0123456789ab") == pytest.approx(3.01)


def test_costs_are_counted_for_all_requests_together() -> None:
    assert [value(f"cost_{name}_total") for name in COSTS] == [getattr(engine_stats().costs, name) for name in COSTS]


def test_who_is_not_among_the_busiest_is_one_label() -> None:
    loads = [TenantLoad(tenant=f"t{i}", waiting=1, running=2, service=0.0, weight=1.0) for i in range(300)]
    stats = engine_stats(tenants=loads, busiest_tenants=[f"t{i}" for i in range(50)])
    assert value("tenant_waiting_requests", stats, tenant="other") == 250
    assert value("tenant_running_requests", stats, tenant="t49") == 2
    assert value("tenant_pool_bytes", stats, pool="kv", tenant="other") == 600
    labels = {sample.labels["tenant"] for family in exported(tenants=loads) for sample in family.samples
              if "tenant" in sample.labels}  # fmt: skip
    assert labels <= {"anna", "ben", "other"}


def test_tenants_and_adapters_are_labels_only_where_the_name_says_so() -> None:
    samples = [sample for family in exported() for sample in family.samples]
    assert {sample.name.split("_")[1] for sample in samples if "tenant" in sample.labels} == {"tenant"}
    assert {sample.name.split("_")[1] for sample in samples if "adapter" in sample.labels} == {"adapter"}


def test_what_is_written_is_what_a_registry_has() -> None:
    """The text is our own; a scraper reads from it what the library would have told it."""
    odd = 'a "b"\n\\c'
    stats = engine_stats(busiest_tenants=[odd], histograms=[histogram("e2e", "tenant", odd, 1.0, 500.0)])
    collected = CollectorRegistry()
    told = (*families(stats), *process(PROFILE, turn_age_s=1.5))
    EngineCollector(lambda: told, collected)
    text = render(told).decode()
    read = {family.name: family for family in text_string_to_metric_families(text)}
    for family in collected.collect():
        assert (read[family.name].type, read[family.name].documentation) == (family.type, family.documentation)
        there = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples}
        assert {(s.name, *sorted(s.labels.items())): s.value for s in read[family.name].samples} == there


def test_a_scrape_writes_as_much_for_ten_thousand_adapters_as_for_two() -> None:
    many, counts = [resident(f"{i:064}") for i in range(10_000)], {"resident": 2}
    sizes = [len(render(families(engine_stats(adapters=named, adapters_by_state=counts)))) for named in ([], many)]
    assert sizes[0] == sizes[1]


def test_every_bucket_is_the_bound_it_was_counted_by() -> None:
    (family,) = [family for family in exported() if family.name == "lorikeet_engine_ttft_seconds"]
    bounds = [s.labels["le"] for s in family.samples if s.name.endswith("bucket") and s.labels["kind"] == "base"]
    assert [float(bound) for bound in bounds] == [*BOUNDS_S, float("inf")]


def test_the_many_histograms_of_tenants_and_adapters_have_every_other_bound() -> None:
    (family,) = [family for family in exported() if family.name == "lorikeet_tenant_ttft_seconds"]
    buckets = {float(s.labels["le"]): s.value for s in family.samples if s.labels == s.labels | {"tenant": "anna"}
               and s.name.endswith("bucket")}  # fmt: skip
    assert set(buckets) < {*BOUNDS_S, float("inf")}
    assert len(buckets) == len(BOUNDS_S) // 2
    assert (buckets[0.02], buckets[0.05], buckets[float("inf")]) == (1, 2, 2)
