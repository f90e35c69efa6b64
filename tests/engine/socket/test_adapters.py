"""Adapters over the socket: warmed, retired, ended by force, refused after a failure, and shown with their heat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lorikeet_engine.client import EngineClient
from lorikeet_engine.errors import AdapterDamaged, AdapterRetired, AdapterUnavailable, EngineUnavailable
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.ledger import MemoryState
from tests.engine.socket.conftest import (
    RunningEngine,
    StartEngine,
    answer,
    eventually,
    generation_request,
    is_given_back,
    with_client,
)

NEVER = 10**9  # polls until a load ends
UNLOADED_S = 5.0  # field report A6: within it an unloaded adapter is gone


def state_of(engine: RunningEngine, digest: str) -> list[str]:
    return [state for key, state, *_ in engine.parts.loop.residency.overview() if key.digest == digest]


def test_warming_returns_when_the_image_is_in_memory_and_is_shown(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        await client.warm_adapter("anna", "red", 5.0)
        [seen] = (await client.stats(names_adapters=True)).adapters
        assert (seen.tenant, seen.digest, seen.state, seen.requests, seen.waiting) == ("anna", "red", "host", 0, 0)
        assert seen.heat == 0.0
        await client.warm_adapter("anna", "red", 5.0)
        assert len(engine.parts.loader.started) == 1
        await answer(await client.generate(generation_request(adapter_digest="red")))
        [seen] = (await client.stats(names_adapters=True)).adapters
        assert seen.state == "resident"
        assert 0.2 < seen.heat < 0.24

    with_client(engine, byte_model_dir, scenario)


def test_several_who_warm_one_adapter_are_all_answered(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()
    engine.parts.loader.delay = 20

    async def scenario(client: EngineClient) -> None:
        await asyncio.gather(*[client.warm_adapter("anna", digest, 5.0) for digest in ("red", "red", "green", "red")])
        assert len(engine.parts.loader.started) == 2

    with_client(engine, byte_model_dir, scenario)


def test_what_cannot_be_warmed_says_why_and_requests_for_it_fail_at_once(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(AdapterUnavailable, match="scripted damage"):
            await client.warm_adapter("anna", "bad", 5.0)
        with pytest.raises(AdapterUnavailable) as failed:
            await client.warm_adapter("anna", "bad", 5.0)
        assert failed.value.retry_after_s == 2.0
        with pytest.raises(AdapterUnavailable, match="scripted damage") as refused:
            await answer(await client.generate(generation_request(adapter_digest="bad")))
        assert refused.value.retry_after_s
        assert 0.0 < refused.value.retry_after_s <= 2.0
        assert len(engine.parts.loader.started) == 2
        engine.parts.loader.error = AdapterDamaged("another digest")
        with pytest.raises(AdapterDamaged) as damaged:
            await client.warm_adapter("anna", "bad", 5.0)
        assert (damaged.value.code, damaged.value.retry_after_s) == ("integrity_error", None)
        with pytest.raises(AdapterDamaged):
            await answer(await client.generate(generation_request("again", adapter_digest="bad")))
        engine.parts.loader.error = None
        await client.warm_adapter("anna", "bad", 5.0)
        assert (await answer(await client.generate(generation_request("works", adapter_digest="bad"))))[1] == "length"

    with_client(engine, byte_model_dir, scenario)


def test_who_warms_waits_no_longer_than_it_said(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()
    engine.parts.loader.delay = NEVER

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(EngineUnavailable, match=r"within 0\.1 s"):
            await client.warm_adapter("anna", "red", 0.1)
        late = asyncio.create_task(client.warm_adapter("anna", "red", 5.0))
        await eventually(lambda: state_of(engine, "red") == ["loading"])
        [seen] = (await client.stats(names_adapters=True)).adapters
        assert (seen.state, seen.requests, seen.waiting) == ("loading", 0, 0), "it is no request that waits"
        engine.parts.loader.pending = [(key, 1) for key, _ in engine.parts.loader.pending]
        await late
        assert len(engine.parts.loop.warming) == 0

    with_client(engine, byte_model_dir, scenario)


def test_an_engine_that_goes_away_ends_the_warming(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()
    engine.parts.loader.delay = NEVER

    async def scenario(client: EngineClient) -> None:
        warming = asyncio.create_task(client.warm_adapter("anna", "red", 20.0))
        await eventually(lambda: bool(engine.parts.loop.warming))
        engine.stop()
        with pytest.raises(EngineUnavailable):
            await warming
        with pytest.raises(EngineUnavailable):
            await client.warm_adapter("anna", "red", 1.0)

    with_client(engine, byte_model_dir, scenario)


def test_retiring_ends_a_warming_and_warming_ends_a_retirement(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()
    engine.parts.loader.delay = NEVER

    async def scenario(client: EngineClient) -> None:
        warming = asyncio.create_task(client.warm_adapter("anna", "red", 5.0))
        await eventually(lambda: state_of(engine, "red") == ["loading"])
        await client.retire_adapter("anna", "red")
        with pytest.raises(AdapterRetired):
            await warming
        again = asyncio.create_task(client.warm_adapter("anna", "red", 5.0))
        await eventually(lambda: bool(engine.parts.loop.warming))
        engine.parts.loader.pending = [(key, 1) for key, _ in engine.parts.loader.pending]
        await again
        assert (await answer(await client.generate(generation_request(adapter_digest="red"))))[1] == "length"

    with_client(engine, byte_model_dir, scenario)


def test_who_warms_an_adapter_again_after_its_retirement_gets_the_answer_of_that_load(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    """Between two turns of the engine: it answers the first, and the second only when its image is there or not."""
    engine = start_engine()
    engine.parts.loader.delay = NEVER

    async def scenario(client: EngineClient) -> None:
        first = asyncio.create_task(client.warm_adapter("anna", "red", 5.0))
        await eventually(lambda: state_of(engine, "red") == ["loading"])
        turn, engine.server.turn = engine.server.turn, lambda *, wait_ms: time.sleep(wait_ms / 1e3)
        await asyncio.sleep(0.05)  # the last turn has ended
        await client.retire_adapter("anna", "red")
        second = asyncio.create_task(client.warm_adapter("anna", "red", 5.0))
        await asyncio.sleep(0.05)  # both have arrived
        engine.server.turn = turn
        with pytest.raises(AdapterRetired):
            await first
        await asyncio.sleep(0.05)
        assert not second.done()
        assert state_of(engine, "red") == ["loading"]
        engine.parts.loader.pending = [(key, 1) for key, _ in engine.parts.loader.pending]
        await second

    with_client(engine, byte_model_dir, scenario)


def test_a7_force_ends_a_running_answer_of_that_tenant_only(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine(max_model_len=60_000, n_blocks=40_000)

    async def scenario(client: EngineClient) -> None:
        theirs, other = [
            await client.generate(generation_request(name, tenant=name, max_tokens=n, adapter_digest="red"))
            for name, n in (("anna", 20_000), ("ben", 300))
        ]
        await eventually(lambda: engine.parts.loop.scheduler.n_running == 2)
        await client.retire_adapter("anna", "red", force=True)
        with pytest.raises(AdapterRetired):
            await answer(theirs)
        assert (await answer(other))[1] == "length"
        await eventually(lambda: is_given_back(engine))
        assert {owner.tenant for owner in engine.parts.loop.kv.ledger.held_by_owner()} == {"ben"}

    with_client(engine, byte_model_dir, scenario)


MOMENTS: dict[str, Callable[[EngineLoop], bool]] = {  # when five callers hang up, by what has been reached then
    "loading": lambda loop: len(loop.residency.overview()) == 1,
    "queued": lambda loop: (loop.scheduler.n_running, loop.scheduler.n_waiting) == (2, 3),
    "prefill": lambda loop: loop.scheduler.n_running > 0 and not loop.counters.generated_tokens,
    "decode": lambda loop: loop.scheduler.n_running == 5 and loop.counters.generated_tokens > 0,
}


@pytest.mark.parametrize("way", ["callers", "gateway", "gateway, by force"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a6_what_hangs_up_does_not_keep_an_adapter_from_being_unloaded(
    moment: str, way: str, start_engine: StartEngine, byte_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five callers go, or their gateway dies without a word; then another gateway asks for the unloading."""
    monkeypatch.setattr("lorikeet_engine.server.CLIENT_TIMEOUT_S", 60.0 if way == "gateway, by force" else 2.0)
    engine = start_engine(max_num_seqs=2 if moment == "queued" else 8, max_model_len=60_000, n_blocks=40_000)
    loop = engine.parts.loop
    engine.parts.loader.delay = NEVER if moment == "loading" else 1
    n_prompt = 12_000 if moment == "prefill" else 9  # so long that nobody who looks can miss it

    async def leave_behind(client: EngineClient) -> None:
        generations = [
            await client.generate(
                generation_request(
                    f"r{number}",
                    prompt=(5,) * n_prompt,
                    max_tokens=20_000,
                    adapter_digest="red",
                    cache_salt=b"%d" % number,
                )
            )
            for number in range(5)
        ]
        await eventually(lambda: loop.scheduler.n_running + loop.scheduler.n_waiting == 5 and MOMENTS[moment](loop))
        if way == "callers":
            await asyncio.gather(*[generation.close() for generation in generations])
            await eventually(lambda: loop.scheduler.n_running + loop.scheduler.n_waiting == 0)

    async def hang_up() -> None:
        client = EngineClient(endpoint=engine.endpoint, model_dir=byte_model_dir)
        await client.start()
        try:
            await client.wait_ready(5)
            await leave_behind(client)
        finally:
            await client.stop()

    async def scenario(client: EngineClient) -> None:
        await hang_up()
        engine.parts.loader.pending = [(key, 1) for key, _ in engine.parts.loader.pending]
        await client.retire_adapter("anna", "red", force=way == "gateway, by force")
        await eventually(lambda: not loop.residency.overview(), timeout_s=UNLOADED_S)
        for ledger in (loop.kv.ledger, loop.residency.ledger, loop.residency.host_ledger):
            assert ledger[MemoryState.FREE] == ledger.capacity
        assert (await answer(await client.generate(generation_request("base"))))[1] == "length"

    with_client(engine, byte_model_dir, scenario)
