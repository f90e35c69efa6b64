"""What tenants share of one engine, and what they do not: prefixes, queues, adapters, deadlines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.client import EngineClient
from lorikeet_engine.errors import AdapterRetired, DeadlineExceeded, EngineError, TenantLimited
from lorikeet_engine.stats import EngineStats
from tests.engine.socket.conftest import StartEngine, answer, eventually, generation_request, with_client

PROMPT = tuple(range(1, 18))  # four blocks of four, and one token that is always computed
NEVER = 10**9


async def cached_tokens(client: EngineClient, request_id: str, **changes: Any) -> int:
    generation = await client.generate(generation_request(request_id, prompt=PROMPT, **changes))
    await answer(generation)
    return generation.usage.cached_tokens


async def refusal(client: EngineClient, request_id: str, **changes: Any) -> EngineError:
    with pytest.raises(EngineError) as raised:
        await answer(await client.generate(generation_request(request_id, **changes)))
    return raised.value


def test_a_prefix_is_found_again_by_the_same_tenant_and_adapter_and_by_nobody_else(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    mine = {"tenant": "anna", "cache_salt": b"anna's", "adapter_digest": "red"}
    others: list[dict[str, Any]] = [
        {"cache_salt": b"ben's"},
        {"tenant": "ben"},
        {"tenant": "ben", "cache_salt": b"ben's"},
        {"adapter_digest": None},
        {"adapter_digest": "red, version 2"},
    ]

    async def scenario(client: EngineClient) -> None:
        assert await cached_tokens(client, "first", **mine) == 0
        assert await cached_tokens(client, "again", **mine) == 16
        for number, change in enumerate(others):
            assert await cached_tokens(client, f"other{number}", **mine | change) == 0, change
        assert await cached_tokens(client, "still", **mine) == 16

    with_client(start_engine(), byte_model_dir, scenario)


def test_several_answers_report_the_part_of_their_prompt_that_was_cached_before(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    async def scenario(client: EngineClient) -> None:
        assert await cached_tokens(client, "first", n=3) == 0
        assert await cached_tokens(client, "again", n=3) == 16

    with_client(start_engine(), byte_model_dir, scenario)


def test_a_tenant_beyond_its_share_of_the_queue_is_told_so_and_others_are_served(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine(max_queued_requests=4, tenant_queue_share=0.25)
    engine.parts.loader.delay = NEVER

    async def scenario(client: EngineClient) -> None:
        await client.generate(generation_request("waits", adapter_digest="never"))
        await eventually(lambda: engine.parts.loop.has_work)
        error = await refusal(client, "too much")
        assert isinstance(error, TenantLimited)
        assert error.reason == "tenant_queue"
        assert error.retry_after_s is not None
        assert error.retry_after_s > 0
        assert (await answer(await client.generate(generation_request("other", tenant="ben"))))[1] == "length"
        assert (await client.stats()).refusals == {"tenant_queue": 1}

    with_client(engine, byte_model_dir, scenario)


def test_what_waits_beyond_its_deadline_is_dropped_and_costs_nothing(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine(ttft_deadline_s=0.3)
    engine.parts.loader.delay = NEVER

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(adapter_digest="never"))
        with pytest.raises(DeadlineExceeded):
            await answer(generation)
        assert generation.usage.prompt_tokens == 0
        assert (await client.stats()).expired == 1
        assert not engine.parts.loop.has_work

    with_client(engine, byte_model_dir, scenario)


def test_a_retired_adapter_starts_nothing_new(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()
    engine.parts.loader.delay = NEVER

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(adapter_digest="red"))
        await eventually(lambda: engine.parts.loop.has_work)
        await client.retire_adapter("ben", "red")  # another tenant's of the same content
        assert (await answer(await client.generate(generation_request("base"))))[1] == "length"
        await client.retire_adapter("anna", "red")
        with pytest.raises(AdapterRetired):
            await answer(generation)

    with_client(engine, byte_model_dir, scenario)


def test_the_figures_name_queues_ledgers_prefixes_and_residency(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine()
    seen: list[EngineStats] = []

    async def scenario(client: EngineClient) -> None:
        await cached_tokens(client, "first", adapter_digest="red")
        await cached_tokens(client, "again", adapter_digest="red")
        engine.parts.loader.delay = NEVER
        await client.generate(generation_request("waits", tenant="ben", weight=3.0, adapter_digest="never"))
        seen.append(await client.stats(names_adapters=True))

    with_client(engine, byte_model_dir, scenario)
    [stats] = seen
    assert (stats.prompt_tokens_total, stats.generated_tokens_total) == (17 + 1, 12)
    assert [(load.tenant, load.waiting, load.running, load.weight) for load in stats.tenants] == [("ben", 1, 0, 3.0)]
    assert [(use.tenant, use.adapter, use.queried_tokens, use.hit_tokens) for use in stats.prefix.uses] == [
        ("anna", "red", 34, 16)
    ]
    assert sum(stats.prefix.misses.values()) >= 1
    assert {(a.tenant, a.digest, a.state, a.requests, a.waiting) for a in stats.adapters} == {
        ("anna", "red", "resident", 0, 0),
        ("ben", "never", "loading", 0, 1),
    }
    assert stats.adapter_traffic.loads["disk"] == 1
    for ledger in (stats.kv, stats.arena, stats.host, stats.swap):
        assert ledger.used + ledger.reserved + ledger.in_flight + ledger.cached + ledger.free == ledger.capacity
        assert sum(ledger.by_tenant.values()) + ledger.free == ledger.capacity
    assert stats.kv.by_tenant.keys() == {"anna"}
    assert sum(work.flops for work in stats.work_by_kind.values()) > 0
