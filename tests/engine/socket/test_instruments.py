"""What an engine tells of itself over its socket: its figures, its newest steps, how alike prompts are, its design."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lorikeet_engine.client import EngineClient
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import ModelCost
from lorikeet_engine.design import PLACES, describe
from lorikeet_engine.health import HealthServer
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.measure import measure
from lorikeet_engine.memory.adapters import entry as entry_module
from lorikeet_engine.memory.adapters.entry import LEAST_NAMED, AdapterEntries
from lorikeet_engine.metrics import families, render
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.sizing.memory_budget import plan_memory
from tests.engine.socket.conftest import StartEngine, answer, generation_request, with_client
from tests.support.engine_figures import engine_design, engine_stats
from tests.support.scripted_engine_parts import ScriptedEngine, request, scripted_engine

MIB = 1 << 20


async def serve(client: EngineClient, *names: str, **changes: Any) -> None:
    for name in names:
        await answer(await client.generate(generation_request(name, **changes)))


def test_figures_say_what_was_served(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        await serve(client, "a", "b", adapter_digest="red")
        await serve(client, "c", tenant="ben")
        stats = await client.stats(names_adapters=True)
        counts = {(h.measure, h.label): sum(h.counts) for h in stats.histograms if h.by in ("kind", "tenant")}
        assert (counts["ttft", "adapter"], counts["ttft", "base"]) == (2, 1)
        assert (counts["e2e", "anna"], counts["itl", "ben"]) == (2, 5)
        assert counts["step", "decode"] == stats.steps_by_kind["decode"] > 0
        assert stats.busiest_tenants == ["anna", "ben"]
        assert [adapter.digest for adapter in stats.adapters] == ["red"]
        assert stats.adapters_by_state["resident"] == 1 == sum(stats.adapters_by_state.values())
        (red, others) = stats.adapter_uses
        assert (red.digest, red.loads, others.digest, others.tokens) == ("red", 1, "", 0)
        assert 0 < stats.kv_peak_bytes <= stats.kv.capacity

    with_client(start_engine(), byte_model_dir, scenario)


def test_steps_are_asked_for_from_where_one_left_off(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        await serve(client, "a")
        first = await client.steps()
        assert {step.kind for step in first.samples} == {"prefill", "decode"}
        assert sum(step.n_sampled for step in first.samples) == 6
        assert (await client.steps(first.samples[-1].end_s)).samples == []
        await serve(client, "b")
        newer = await client.steps(first.samples[-1].end_s)
        assert len(newer.samples) == len(first.samples)
        assert newer.now_s > first.now_s

    with_client(start_engine(), byte_model_dir, scenario)


def test_prompts_are_compared_by_tenant_and_adapter_and_do_not_leave(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    async def scenario(client: EngineClient) -> None:
        for stamp in range(20, 30):
            await serve(client, f"a{stamp}", prompt=(stamp, *range(60, 90)))
        await serve(client, "b", tenant="ben", adapter_digest="red", prompt=(1, 2))
        await serve(client, "choices", tenant="carl", prompt=(5, 6), n=3)
        anna, ben, carl = await client.prompts()
        assert (anna.tenant, anna.adapter, anna.n_prompts, anna.mean_tokens) == ("anna", "", 10, 31)
        assert (anna.common_tokens, anna.tokens) == (0, (24, 25))
        assert (anna.queried_tokens, anna.hit_tokens) == (310, 0)
        assert (ben.tenant, ben.adapter, ben.n_prompts, ben.tokens) == ("ben", "red", 1, None)
        assert (carl.tenant, carl.n_prompts) == ("carl", 1)

    with_client(start_engine(), byte_model_dir, scenario)


def test_the_design_arrives_as_it_was_given(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        design = await client.design()
        assert design == engine_design()
        assert isinstance(design.cost, ModelCost)

    with_client(start_engine(), byte_model_dir, scenario)


def test_questions_asked_together_get_each_its_own_answer(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        asked = (client.stats(), client.steps(), client.prompts(), client.design(), client.counts())
        stats, steps, prompts, design, counts = await asyncio.gather(*asked)
        assert (stats.steps_total, steps.samples, prompts, list(counts)) == (0, [], [], [])
        assert design.block_size == 4

    with_client(start_engine(), byte_model_dir, scenario)


class UnwalkableEntries(AdapterEntries):
    """Adapters that can be looked up one by one only."""

    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("somebody walks over all adapters")

    __iter__ = keys = values = items = _refuse


def test_what_is_published_is_found_without_walking_over_all_adapters() -> None:
    engine = scripted_engine()
    engine.loop.submit([request("r", adapter="red")], 0.0)
    for now in range(8):
        engine.loop.step(float(now))
    engine.loop.residency._entries.__class__ = UnwalkableEntries
    published = measure(engine.loop, now=9.0, uptime_s=9.0, unsettled=0)
    assert (published.adapters, published.adapters_by_state["resident"]) == ([], 1)
    assert b'lorikeet_adapters{state="resident"} 1.0' in render(families(published))


def test_one_adapter_is_asked_for_by_name_without_walking_over_all(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        await serve(client, "a", adapter_digest="red")
        engine.parts.loop.residency._entries.__class__ = UnwalkableEntries
        red = await client.adapter("anna", "red")
        assert red is not None
        assert (red.tenant, red.digest, red.state, red.requests, red.waiting) == ("anna", "red", "resident", 0, 0)
        assert await client.adapter("ben", "red") is None, "the same digest of another tenant is another adapter"
        assert await client.adapter("anna", "blue") is None
        assert (await client.stats()).adapters == []

    with_client(engine, byte_model_dir, scenario)


def known_to(engine: ScriptedEngine, n: int) -> None:
    """So many adapters have been warmed, and nobody asks for them."""
    for i in range(n):
        engine.loop.warm(AdapterKey("anna", f"idle{i}"), 0.0)
    for _ in range(4):
        engine.loop.step(0.0)


def test_adapters_in_demand_are_named_and_all_are_counted() -> None:
    """A planned arena is as large as what is in demand, so none of these is left out; of the others some are shown."""
    engine = scripted_engine(host_grains=4096, max_queued_requests=1000, max_loading=300, n_blocks=400)
    known_to(engine, 150)
    for i in range(3 * 130):
        engine.loop.submit([request(f"r{i}", adapter=f"used{i % 130}", max_tokens=1)], 0.0)
    engine.loop.submit([request("waits", adapter="wanted", max_tokens=40)], 0.0)
    while engine.loop.scheduler.n_waiting > 1:
        engine.loop.step(1.0)
    named = measure(engine.loop, now=2.0, uptime_s=2.0, unsettled=0, names_adapters=True)
    assert {adapter.digest for adapter in named.adapters} == {"wanted", *(f"used{i}" for i in range(130))}
    assert sum(named.adapters_by_state.values()) == 150 + 131
    later = measure(engine.loop, now=7200.0, uptime_s=7200.0, unsettled=0, names_adapters=True)
    assert len(later.adapters) == LEAST_NAMED
    assert later.adapters[0].digest == "wanted", "it has a request, and the rest is cold"


def test_no_more_than_so_many_adapters_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_module, "LEAST_NAMED", 2)
    monkeypatch.setattr(entry_module, "MOST_NAMED", 5)
    engine = scripted_engine(load_delay=100)
    for i, n in enumerate([1, 2, 3, 4, 5, 6, 7]):
        for k in range(n):
            engine.loop.submit([request(f"r{i}-{k}", adapter=f"a{i}")], 0.0)
    named = measure(engine.loop, now=0.0, uptime_s=0.0, unsettled=0, names_adapters=True)
    assert [adapter.digest for adapter in named.adapters] == ["a6", "a5", "a4", "a3", "a2"]


def test_the_server_publishes_figures_that_name_no_adapters(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        await serve(client, "a", adapter_digest="red")
        async with asyncio.timeout(5):
            while not engine.server.published.adapters_by_state["resident"]:
                await asyncio.sleep(0.05)
        assert engine.server.published.adapters == []

    with_client(engine, byte_model_dir, scenario)


def test_a_design_names_every_knob_with_the_value_chosen_and_no_place() -> None:
    config = EngineConfig(
        model_dir=Path("model"), model_name="m", store_url="store", endpoint="ipc://secret-place", threads=3
    )
    spec, device = load_model("smollm2-135m"), load_device("cpu2")
    budget = plan_memory(config, spec, itemsize=4, weights_bytes=600 * MIB, available_bytes=4096 * MIB)
    design = describe(
        config, budget, dtype="float32", itemsize=4, model=spec, cost=ModelCost.of(spec, itemsize=4), device=device
    )
    assert design.knobs.keys() | PLACES == {*EngineConfig.__dataclass_fields__}
    assert not design.knobs.keys() & PLACES
    assert (design.knobs["dtype"], design.knobs["threads"], design.knobs["max_num_batched_tokens"]) == (
        "float32",
        3,
        512,
    )
    assert design.knobs["max_num_seqs"] == design.max_num_seqs > 0
    assert design.knobs["max_model_len"] == design.max_model_len == 2048
    assert design.knobs["kv_cache_bytes"] == dict(design.memory)["KV pool"]
    assert sum(n_bytes for _, n_bytes in design.memory) == design.available_bytes == 4096 * MIB
    assert design.n_blocks == budget.n_blocks - 1


def test_the_health_port_answers_a_scrape_in_the_text_format() -> None:
    server = HealthServer(
        host="127.0.0.1",
        port=0,
        metrics=lambda: render(families(engine_stats())),
        is_live=lambda: True,
        is_ready=lambda: False,
    )
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as found:
            assert found.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert b"\nlorikeet_kv_peak_bytes 350.0\n" in found.read()
    finally:
        server.stop()
