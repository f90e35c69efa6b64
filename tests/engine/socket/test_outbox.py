"""What requests have used, over the socket: counted by the engine, claimed by their client, settled by anybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from lorikeet_engine import server as server_module
from lorikeet_engine.client import Cap, EngineClient, RequestCounts
from lorikeet_engine.errors import EngineUnavailable, InvalidRequest
from lorikeet_engine.protocol import Submit, encode
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from tests.engine.socket.conftest import (
    RunningEngine,
    StartEngine,
    answer,
    eventually,
    generation_request,
    with_client,
)


def counts(request_id: str, state: str, prompt: int, completion: int, *, cached: int = 0) -> RequestCounts:
    return RequestCounts(
        request_id=request_id,
        tenant="anna",
        state=state,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        cost=None,
    )


def submit(request_id: str, **changes: Any) -> Submit:
    fields: dict[str, Any] = {
        "tenant": "anna", "weight": 1.0, "cache_salt": b"", "n": 1, "prompt": [5, 6, 7], "max_tokens": 6, "top_k": 0,
        "temperature": 0.0, "top_p": 1.0, "seed": 0, "adapter": "", "caps": [], "ignore_eos": False,
    }  # fmt: skip
    return Submit(request_id=request_id, **fields | changes)


def tokens(found: Sequence[RequestCounts]) -> list[RequestCounts]:
    """Without what they have cost, which `tests/engine/costing` looks at."""
    return [msgspec.structs.replace(each, cost=None) for each in found]


async def offered(client: EngineClient, n: int = 1) -> list[RequestCounts]:
    """What nobody claims, once it is `n` requests."""
    async with asyncio.timeout(5):
        while len(found := list(await client.counts())) < n:
            await asyncio.sleep(0.01)
    return found


def hold(engine: RunningEngine) -> None:
    """Adapter "slow" does not come."""
    engine.parts.loader.delay = 10**9


def test_the_engine_counts_what_the_client_got_until_it_is_settled(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    async def scenario(client: EngineClient) -> None:
        one, three = generation_request("one"), generation_request("three", n=3, prompt=(9, 8), max_tokens=4)
        for request in (one, three):
            generation = await client.generate(request)
            await answer(generation)
            (known,) = await client.counts([request.request_id])
            used = generation.usage
            assert tokens([known])[0] == counts(
                request.request_id, "ended", used.prompt_tokens, used.completion_tokens, cached=used.cached_tokens
            )
        assert tokens(await client.counts(["three", "never", "one"])) == [
            counts("three", "ended", 2, 12),
            counts("one", "ended", 3, 6),
        ]
        assert await client.counts() == [], "they are their client's"
        await client.settled(["one", "never"])
        assert [known.request_id for known in await client.counts(["one", "three"])] == ["three"]

    with_client(start_engine(), byte_model_dir, scenario)


def test_cached_prompt_tokens_are_those_of_the_first_answer(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        prompt = tuple(range(1, 18))
        await answer(await client.generate(generation_request("first", prompt=prompt)))
        again = await client.generate(generation_request("again", prompt=prompt, n=2))
        await answer(again)
        assert again.usage.cached_tokens == 16
        assert tokens(await client.counts(["again"])) == [counts("again", "ended", 17, 12, cached=16)]

    with_client(start_engine(), byte_model_dir, scenario)


def test_a_refused_request_was_never_there_and_one_that_waits_has_used_nothing(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine()
    hold(engine)

    async def scenario(client: EngineClient) -> None:
        refused = await client.generate(generation_request("refused", prompt=()))
        with pytest.raises(InvalidRequest):
            await answer(refused)
        waiting = await client.generate(generation_request("waiting", adapter_digest="slow"))
        await eventually(lambda: engine.parts.loop.has_work)
        assert tokens(await client.counts(["refused", "waiting"])) == [counts("waiting", "running", 0, 0)]
        await waiting.close()
        assert tokens(await client.counts(["waiting"])) == [counts("waiting", "ended", 0, 0)]

    with_client(engine, byte_model_dir, scenario)


def test_what_is_settled_while_it_runs_is_not_offered_later(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine(unclaimed_after_s=0.0)
    hold(engine)

    async def scenario(client: EngineClient) -> None:
        waiting = await client.generate(generation_request("early", adapter_digest="slow"))
        await client.settled(["early"])
        assert await client.counts(["early"]) == []
        await waiting.close()
        assert await client.counts() == []

    with_client(engine, byte_model_dir, scenario)


def test_what_its_client_does_not_settle_is_offered_to_whoever_asks(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    async def scenario(client: EngineClient) -> None:
        await answer(await client.generate(generation_request("left")))
        assert await client.counts() == []
        assert tokens(await offered(client)) == [counts("left", "ended", 3, 6)]
        assert tokens(await offered(client)) == [counts("left", "ended", 3, 6)], "as long as nobody settles it"
        await client.settled(["left"])
        assert await client.counts() == []

    with_client(start_engine(unclaimed_after_s=0.3), byte_model_dir, scenario)


def test_f_5_a_client_that_fell_silent_leaves_its_requests_to_the_others(
    start_engine: StartEngine, byte_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CLIENT_TIMEOUT_S", 2.5)
    engine = start_engine(outbox_dir=tmp_path)
    execute: Callable[[StepPlan], StepResult] = engine.parts.runner.execute

    def slowly(plan: StepPlan) -> StepResult:
        time.sleep(0.04)
        return execute(plan)

    monkeypatch.setattr(engine.parts.runner, "execute", slowly)

    async def scenario(client: EngineClient) -> None:
        gone = EngineClient(endpoint=engine.endpoint, model_dir=byte_model_dir)
        await gone.start()
        try:
            await gone.wait_ready(5)
            await answer(await gone.generate(generation_request("ended")))
            generation = await gone.generate(generation_request("running", max_tokens=120))
            async for _ in generation:
                if generation.usage.completion_tokens >= 10:
                    break
            for task in gone._tasks:
                task.cancel()
            found = {known.request_id: known for known in await offered(client, 2)}
        finally:
            await gone.stop()
        assert tokens([found["ended"]])[0] == counts("ended", "ended", 3, 6)
        assert found["running"].state == "ended"
        assert 10 <= found["running"].completion_tokens < 120
        journal = tmp_path / "outbox.jsonl"
        await eventually(lambda: b'"state": "ended", "id": "running"' in journal.read_bytes())

    with_client(engine, byte_model_dir, scenario)


def test_f_5_a_client_whose_connection_ends_is_missed_with_the_next_token(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine(max_model_len=2000, n_blocks=600)

    async def scenario(client: EngineClient) -> None:
        cap = Cap("anna", 1, 1)
        with zmq.Context() as killed:
            peer = killed.socket(zmq.DEALER)
            peer.connect(engine.endpoint)
            peer.send(encode(submit("running", max_tokens=1990, caps=[cap])))
            await eventually(lambda: engine.parts.loop.scheduler.n_running == 1)
            killed.destroy(linger=0)
        (left,) = await offered(client)
        assert (left.request_id, left.state) == ("running", "ended")
        assert 0 < left.completion_tokens < 1990
        await answer(await client.generate(generation_request("next", caps=(cap,))))

    with_client(engine, byte_model_dir, scenario)


def test_f_1_the_next_engine_knows_what_was_not_settled_when_the_first_one_stopped(
    start_engine: StartEngine, byte_model_dir: Path, tmp_path: Path
) -> None:
    first = start_engine(outbox_dir=tmp_path, unclaimed_after_s=0.2)

    async def scenario(client: EngineClient) -> None:
        for name in ("kept", "settled"):
            await answer(await client.generate(generation_request(name)))
        await client.settled(["settled"])
        await client.counts(["settled"])  # heard
        first.stop()
        start_engine(outbox_dir=tmp_path, unclaimed_after_s=0.2)
        await eventually(lambda: not client.ready)
        await client.wait_ready(5)
        assert await client.counts(["kept", "settled"]) == [counts("kept", "ended", 3, 6)]
        assert tokens(await offered(client)) == [counts("kept", "ended", 3, 6)]

    with_client(first, byte_model_dir, scenario)


def test_an_engine_whose_use_nobody_puts_on_record_serves_no_more(
    start_engine: StartEngine, byte_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lorikeet_engine.outbox.book.MOST_UNSETTLED", 2)

    async def scenario(client: EngineClient) -> None:
        for name in ("a", "b"):
            await answer(await client.generate(generation_request(name)))
        third = await client.generate(generation_request("c"))
        with pytest.raises(EngineUnavailable, match="not on record"):
            await answer(third)
        assert (await client.stats()).unsettled == 2
        await client.settled(["a"])
        await answer(await client.generate(generation_request("c")))

    with_client(start_engine(), byte_model_dir, scenario)
