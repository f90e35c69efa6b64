"""The engine over its socket: answers, refusals, aborts, restarts, and who may connect."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.client import EngineClient, Generation, GenerationRequest, SamplingParams, Usage
from lorikeet_engine.errors import ContextLengthExceeded, EngineUnavailable, InvalidRequest
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.socket_keys import SocketKeys, keys_for
from tests.support.scripted_engine_parts import answer_alone

StartEngine = Callable[..., Any]


def generation_request(request_id: str = "r", **changes: Any) -> GenerationRequest:
    fields: dict[str, Any] = {
        "request_id": request_id,
        "tenant": "anna",
        "prompt": (5, 6, 7),
        "max_tokens": 6,
        "sampling": SamplingParams(),
    }
    return GenerationRequest(**(fields | changes))


async def answer(generation: Generation) -> tuple[str, str | None]:
    text, reason = "", None
    async for delta in generation:
        text += delta.text
        reason = delta.finish_reason
    return text, reason


def with_client(
    engine: Any, model_dir: Path, scenario: Callable[[EngineClient], Awaitable[None]], **options: Any
) -> None:
    async def run() -> None:
        client = EngineClient(endpoint=engine.endpoint, model_dir=model_dir, **options)
        await client.start()
        try:
            await client.wait_ready(5)
            await scenario(client)
        finally:
            await client.stop()

    asyncio.run(run())


async def eventually(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def test_an_answer_is_the_text_of_its_tokens_and_is_counted(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request())
        text, reason = await answer(generation)
        assert text == client.tokenizer.decode([t for t in answer_alone((5, 6, 7), 6, None) if t < 256])
        assert reason == "length"
        assert generation.usage == Usage(3, 6)

    with_client(start_engine(), byte_model_dir, scenario)


def test_requests_together_get_the_answers_they_get_alone(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        requests = [
            generation_request(f"r{i}", prompt=tuple(range(1, 4 + i)), max_tokens=3 + i, adapter_digest=digest)
            for i, digest in enumerate([None, "red", "green", "red", None, "blue"])
        ]
        together = await asyncio.gather(*[client.generate(request) for request in requests])
        texts = await asyncio.gather(*[answer(generation) for generation in together])
        for request, (text, _) in zip(requests, texts, strict=True):
            alone = await client.generate(replace(request, request_id="alone"))
            assert (await answer(alone))[0] == text

    with_client(start_engine(), byte_model_dir, scenario)


def test_a_stop_string_ends_the_answer_frees_the_engine_and_bills_what_was_accepted(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        whole, _ = await answer(await client.generate(generation_request("whole", max_tokens=60)))
        stop = whole[1:3]
        generation = await client.generate(generation_request("cut", max_tokens=60, stop=(stop,)))
        text, reason = await answer(generation)
        assert (text, reason) == (whole[: whole.index(stop)], "stop")
        assert generation.usage.completion_tokens < 60
        await eventually(lambda: not engine.parts.loop.has_work)

    with_client(engine, byte_model_dir, scenario)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"prompt": ()}, InvalidRequest),
        ({"max_tokens": 0}, InvalidRequest),
        ({"max_tokens": 1000}, ContextLengthExceeded),
        ({"sampling": SamplingParams(temperature=float("nan"))}, InvalidRequest),
        ({"sampling": SamplingParams(top_p=0.0)}, InvalidRequest),
        ({"sampling": SamplingParams(top_k=-1)}, InvalidRequest),
    ],
)
def test_a_refusal_comes_back_as_the_same_error_and_bills_nothing(
    start_engine: StartEngine, byte_model_dir: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(**changes))
        with pytest.raises(error):
            await answer(generation)
        assert generation.usage == Usage(0, 0)

    with_client(start_engine(), byte_model_dir, scenario)


def test_a_closed_generation_stops_the_engines_work(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(max_tokens=120))
        async for _ in generation:
            break
        await generation.close()
        await generation.close()
        await eventually(lambda: not engine.parts.loop.has_work)
        assert engine.parts.loop.kv.ledger[MemoryState.FREE] == engine.parts.loop.kv.ledger.capacity

    with_client(engine, byte_model_dir, scenario)


def test_stats_carry_both_ledgers(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        await answer(await client.generate(generation_request(adapter_digest="red")))
        stats = await client.stats()
        assert stats.generated_tokens_total == 6
        assert stats.prompt_tokens_total == 3
        for ledger in (stats.kv, stats.arena):
            parts = ledger.used + ledger.reserved + ledger.in_flight + ledger.cached + ledger.free
            assert parts == ledger.capacity
        assert [(a.tenant, a.digest, a.state, a.requests) for a in stats.adapters] == [("anna", "red", "resident", 0)]

    with_client(start_engine(), byte_model_dir, scenario)


def test_a_restart_ends_running_requests_with_an_error_and_new_ones_work(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    first = start_engine()

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(adapter_digest="slow", max_tokens=100))
        first.stop()
        start_engine(instance_id="second")
        with pytest.raises(EngineUnavailable, match="restarted"):
            await answer(generation)
        await client.wait_ready(5)
        assert (await answer(await client.generate(generation_request("again"))))[1] == "length"

    first.parts.loader.delay = 10**9
    with_client(first, byte_model_dir, scenario)


def test_without_an_engine_requests_are_refused_at_once(byte_model_dir: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        client = EngineClient(endpoint=f"ipc://{tmp_path}/nobody", model_dir=byte_model_dir)
        await client.start()
        with pytest.raises(EngineUnavailable):
            await client.generate(generation_request())
        with pytest.raises(EngineUnavailable):
            await client.wait_ready(0.1)
        await client.stop()

    asyncio.run(scenario())


def test_garbage_on_the_socket_does_not_disturb_the_engine(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        assert client._socket is not None
        for frame in (b"", b"\xc1", b"\x80", b"{}" * 1000):
            await client._socket.send(frame)
        await client._socket.send_multipart([b"two", b"frames"])
        assert (await answer(await client.generate(generation_request())))[1] == "length"

    with_client(start_engine(), byte_model_dir, scenario)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_tcp_answers_only_to_the_holder_of_the_keys(
    start_engine: StartEngine, byte_model_dir: Path, tmp_path: Path
) -> None:
    keys, strangers = SocketKeys.generate(), SocketKeys.generate()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text(keys.text())
    theirs.write_text(SocketKeys(keys.engine_secret, strangers.client_secret).text())
    engine = start_engine(f"tcp://127.0.0.1:{free_port()}", keys=keys)

    async def scenario(client: EngineClient) -> None:
        assert (await answer(await client.generate(generation_request())))[1] == "length"

    async def stranger() -> None:
        client = EngineClient(endpoint=engine.endpoint, model_dir=byte_model_dir, key_file=theirs)
        await client.start()
        with pytest.raises(EngineUnavailable):
            await client.wait_ready(0.7)
        await client.stop()

    with_client(engine, byte_model_dir, scenario, key_file=ours)
    asyncio.run(stranger())


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "inproc://x", "127.0.0.1:1"])
def test_an_endpoint_without_protection_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        keys_for(endpoint, None)
