"""How many requests a subject may have in the engine, whichever client sends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lorikeet_engine import server as server_module
from lorikeet_engine.client import Cap, EngineClient
from lorikeet_engine.errors import ConcurrencyLimited, EngineError, InvalidRequest, QueueLimited
from tests.engine.socket.conftest import StartEngine, answer, eventually, generation_request, with_client


async def refusal(client: EngineClient, name: str, *caps: Cap) -> EngineError:
    generation = await client.generate(generation_request(name, caps=caps))
    with pytest.raises(EngineError) as caught:
        await answer(generation)
    return caught.value


def test_two_gateways_together_have_no_more_than_the_cap_says(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine, cap = start_engine(), Cap("anna", 2, 9)
    engine.parts.loader.delay = 10**9

    async def scenario(client: EngineClient) -> None:
        other = EngineClient(endpoint=engine.endpoint, model_dir=byte_model_dir)
        await other.start()
        try:
            await other.wait_ready(5)
            one = await client.generate(generation_request("one", adapter_digest="slow", caps=(cap,)))
            await eventually(lambda: engine.parts.loop.scheduler.n_waiting == 1)
            two = await other.generate(generation_request("two", adapter_digest="slow", n=3, caps=(cap,)))
            await eventually(lambda: engine.parts.loop.scheduler.n_waiting == 4)
            for number, each in enumerate((client, other)):
                error = await refusal(each, f"three {number}", cap)
                assert isinstance(error, ConcurrencyLimited)
                assert error.reason == "tenant_concurrency"
                assert error.retry_after_s is not None
                assert error.retry_after_s >= 1.0
            assert isinstance(await refusal(other, "waits", Cap("anna", 9, 2)), QueueLimited)
            await one.close()
            await eventually(lambda: engine.parts.loop.scheduler.n_waiting == 3)
            await answer(await other.generate(generation_request("four", caps=(cap,))))
            await two.close()
            await eventually(lambda: len(engine.parts.loop.scheduler.caps) == 0)
        finally:
            await other.stop()

    with_client(engine, byte_model_dir, scenario)


def test_a_client_that_is_gone_takes_up_no_places(
    start_engine: StartEngine, byte_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CLIENT_TIMEOUT_S", 1.0)
    engine = start_engine()
    engine.parts.loader.delay = 10**9

    async def scenario(client: EngineClient) -> None:
        await client.generate(generation_request("one", adapter_digest="slow", caps=(Cap("anna", 1, 1),)))
        await eventually(lambda: len(engine.parts.loop.scheduler.caps) == 1)
        for task in client._tasks:
            task.cancel()
        await eventually(lambda: len(engine.parts.loop.scheduler.caps) == 0)

    with_client(engine, byte_model_dir, scenario)


def test_more_caps_than_anybody_needs_are_refused(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        caps = [Cap(f"subject {number}", 1, 1) for number in range(9)]
        assert isinstance(await refusal(client, "many", *caps), InvalidRequest)

    with_client(start_engine(), byte_model_dir, scenario)
