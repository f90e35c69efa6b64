"""What a scrape of a running engine shows, from one to the next."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lorikeet_engine.measure import measure
from lorikeet_engine.metrics import families, render
from lorikeet_engine.observing import observatory as observatory_module
from lorikeet_engine.observing.busiest import TERM_S
from lorikeet_engine.scheduling.request import Request
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(engine: SteppedEngine) -> Scrape:
    stats = measure(engine.loop, now=engine.now, uptime_s=engine.now, unsettled=0)
    text = render(families(stats)).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def increase(name: str, before: Scrape, after: Scrape) -> float:
    """As Prometheus adds it up over all series of a name: what begins counts from nothing, what is less began anew."""
    series = {key: value for key, value in after.items() if key[0] == f"lorikeet_{name}"}
    was = {key: before.get(key, 0.0) for key in series}
    return sum(value - was[key] if value >= was[key] else value for key, value in series.items())


def do(engine: SteppedEngine, *requests: Request) -> Scrape:
    engine.submit(*requests)
    engine.drain()
    engine.now += TERM_S + 1
    return scrape(engine)


def test_rates_over_all_names_are_of_what_happened_though_names_are_given_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in ("NAMED_TENANTS", "NAMED_ADAPTERS"):
        monkeypatch.setattr(observatory_module, limit, 1)
    engine = stepped_engine(max_queued_requests=1000)
    scrapes = [do(engine, *(request(f"a{i}", tenant="anna", adapter="red", max_tokens=1) for i in range(40)))]
    for i in range(3):
        scrapes.append(do(engine, request(f"b{i}", tenant="ben", adapter="blue", max_tokens=30)))
    names = {dict(labels).get("tenant") for name, labels in scrapes[-1] if name == "lorikeet_tenant_ttft_seconds_count"}
    assert names == {"ben", "other"}, "ben did more, and the name is his"
    for before, after in pairwise(scrapes):
        for owner in ("engine", "tenant", "adapter"):
            assert increase(f"{owner}_ttft_seconds_count", before, after) == 1
        assert increase("adapter_use_tokens_total", before, after) == 5 + 29


def test_loads_are_timed_from_tier_to_tier() -> None:
    engine = stepped_engine(load_delay=3)
    engine.engine.runner.write_s = 0.25
    engine.submit(request("r", adapter="red"))
    engine.drain()
    told = scrape(engine)
    sums = [told["lorikeet_adapter_load_seconds_sum", (("tier", tier),)] for tier in ("disk", "host")]
    assert sums == [3 * engine.engine.runner.step_s, 0.25]
    engine.submit(request("again", adapter="red"), request("bad", adapter="bad"))
    engine.drain()
    told = scrape(engine)
    assert [told["lorikeet_adapter_load_seconds_count", (("tier", tier),)] for tier in ("disk", "host")] == [1, 1]
    assert engine.loop._loading == {}


def test_blocks_count_as_they_are_handed_out_and_evicted_and_adapters_while_requests_run_on_them() -> None:
    engine = stepped_engine(n_blocks=9)  # eight that can be had, of four tokens each
    engine.submit(request("first", n_prompt=16, max_tokens=4, adapter="red"))
    engine.step_until(lambda: engine.tokens.get("first"))
    assert scrape(engine)["lorikeet_pinned_adapters", ()] == 1
    engine.drain()
    told = scrape(engine)
    assert told["lorikeet_pinned_adapters", ()] == 0
    assert told["lorikeet_kv_allocated_blocks_total", ()] == 5
    assert told["lorikeet_kv_evicted_blocks_total", ()] == 0
    n_cached = told["lorikeet_pool_bytes", (("pool", "kv"), ("state", "cached"))] / 64
    engine.submit(request("second", n_prompt=26, max_tokens=4))
    engine.drain()
    told = scrape(engine)
    assert told["lorikeet_kv_allocated_blocks_total", ()] == 5 + 8
    assert told["lorikeet_kv_evicted_blocks_total", ()] == n_cached > 0
