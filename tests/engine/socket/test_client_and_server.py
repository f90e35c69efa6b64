"""The engine over its socket: answers, refusals, aborts, restarts, and who may connect."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from lorikeet_engine.client import EngineClient, SamplingParams, Usage
from lorikeet_engine.errors import ContextLengthExceeded, EngineUnavailable, InvalidRequest
from lorikeet_engine.protocol import PROTOCOL_VERSION, EngineInfo, Welcome, encode
from lorikeet_engine.socket_keys import SocketKeys, keys_for
from tests.engine.socket.conftest import (
    StartEngine,
    answer,
    eventually,
    generation_request,
    is_given_back,
    with_client,
)
from tests.support.ports import free_port
from tests.support.scripted_engine_parts import answer_alone


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


def test_an_answer_that_ignores_its_end_goes_on_to_its_limit_or_to_a_stop_string(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    alone = answer_alone((5, 6, 7), 60, None)
    engine = start_engine(eos_token_ids=frozenset({alone[9]}))

    async def scenario(client: EngineClient) -> None:
        async def ask(request_id: str, **changes: Any) -> tuple[str, str | None, int]:
            generation = await client.generate(generation_request(request_id, max_tokens=60, **changes))
            return *await answer(generation), generation.usage.completion_tokens

        assert (await ask("ends"))[1:] == ("stop", 10)
        whole, reason, n_tokens = await ask("goes on", ignore_eos=True)
        assert (reason, n_tokens) == ("length", 60)
        stop = whole[-2:]
        text, reason, n_tokens = await ask("is cut", ignore_eos=True, stop=(stop,))
        assert (text, reason) == (whole[: whole.index(stop)], "stop")
        assert 10 < n_tokens <= 60

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
        assert is_given_back(engine)

    with_client(engine, byte_model_dir, scenario)


def test_a_restart_ends_running_requests_with_an_error_and_new_ones_work(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    first = start_engine()

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(adapter_digest="slow", max_tokens=100))
        first.stop()
        second = start_engine()
        with pytest.raises(EngineUnavailable, match="shutting down"):
            await answer(generation)
        await client.wait_ready(5)
        assert not second.parts.loop.has_work
        assert (await answer(await client.generate(generation_request("again"))))[1] == "length"

    first.parts.loader.delay = 10**9
    with_client(first, byte_model_dir, scenario)


def test_a_stopped_engine_ends_what_it_has_and_takes_nothing_new(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine(drain_s=20.0)

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(max_tokens=100, adapter_digest="slow"))
        await eventually(lambda: engine.parts.loop.has_work)
        engine.server.stop()
        late = await client.generate(generation_request("late"))
        with pytest.raises(EngineUnavailable, match="shutting down"):
            await answer(late)
        assert (await answer(generation))[1] == "length"

    engine.parts.loader.delay = 50
    with_client(engine, byte_model_dir, scenario)


def test_what_a_stopped_engine_cannot_end_in_time_is_told(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(adapter_digest="never"))
        await eventually(lambda: engine.parts.loop.has_work)
        engine.server.stop()
        with pytest.raises(EngineUnavailable, match="shutting down"):
            await answer(generation)

    engine.parts.loader.delay = 10**9
    with_client(engine, byte_model_dir, scenario)


class Proxy:
    """A TCP connection that can be cut, as networks cut them."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, onward_writer]
        await asyncio.gather(self._copy(reader, onward_writer), self._copy(onward_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    def cut(self) -> None:
        while self._writers:
            self._writers.pop().transport.abort()

    async def stop(self) -> None:
        self.cut()
        self._server.close()


def test_a_cut_connection_ends_its_requests_on_both_sides_and_the_next_one_works(
    start_engine: StartEngine, byte_model_dir: Path, tmp_path: Path
) -> None:
    keys, port = SocketKeys.generate(), free_port()
    key_file = tmp_path / "keys"
    key_file.write_text(keys.text())
    engine = start_engine(f"tcp://127.0.0.1:{port}", keys=keys)

    async def scenario() -> None:
        proxy = Proxy(port)
        endpoint = f"tcp://127.0.0.1:{await proxy.start()}"
        client = EngineClient(endpoint=endpoint, model_dir=byte_model_dir, key_file=key_file)
        await client.start()
        await client.wait_ready(5)
        generation = await client.generate(generation_request(adapter_digest="never"))
        await eventually(lambda: engine.parts.loop.has_work)
        proxy.cut()
        with pytest.raises(EngineUnavailable, match="lost"):
            await answer(generation)
        await client.wait_ready(5)
        await eventually(lambda: not engine.parts.loop.has_work)
        assert (await answer(await client.generate(generation_request("again"))))[1] == "length"
        await client.stop()
        await proxy.stop()

    engine.parts.loader.delay = 10**9
    asyncio.run(scenario())


def test_an_engine_that_took_the_client_for_dead_says_so(
    start_engine: StartEngine, byte_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(adapter_digest="never"))
        await eventually(lambda: engine.parts.loop.has_work)
        monkeypatch.setattr("lorikeet_engine.server.CLIENT_TIMEOUT_S", -1.0)
        await eventually(lambda: not engine.parts.loop.has_work)
        monkeypatch.setattr("lorikeet_engine.server.CLIENT_TIMEOUT_S", 20.0)
        with pytest.raises(EngineUnavailable):
            await answer(generation)
        await client.wait_ready(5)
        assert (await answer(await client.generate(generation_request("again"))))[1] == "length"

    engine.parts.loader.delay = 10**9
    with_client(engine, byte_model_dir, scenario)


def test_a_frame_the_client_does_not_understand_is_passed_over(tmp_path: Path, byte_model_dir: Path) -> None:
    async def scenario() -> None:
        context = zmq.asyncio.Context()
        fake_engine = context.socket(zmq.ROUTER)
        fake_engine.bind(f"ipc://{tmp_path}/e")
        client = EngineClient(endpoint=f"ipc://{tmp_path}/e", model_dir=byte_model_dir)
        await client.start()
        identity, _ = await fake_engine.recv_multipart()
        await fake_engine.send_multipart([identity, msgspec.msgpack.encode({"type": "welcome", "version": 99})])
        info = EngineInfo(
            model_name="m", model_digest="0", device="none", dtype="none", max_model_len=9, block_size=4, vocab=9
        )
        await fake_engine.send_multipart([identity, encode(Welcome(PROTOCOL_VERSION, "session", info))])
        await client.wait_ready(5)
        await client.stop()
        fake_engine.close(0)
        context.term()

    asyncio.run(scenario())


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


def test_a_socket_that_fails_is_an_engine_that_cannot_be_reached_and_what_was_to_stop_is_told_later(
    start_engine: StartEngine, byte_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine(max_model_len=2000, n_blocks=600)

    async def broken(*_: object) -> None:
        raise zmq.ZMQError(zmq.ENOTSOCK)

    async def scenario(client: EngineClient) -> None:
        running = await client.generate(generation_request("running", max_tokens=1990))
        await eventually(lambda: engine.parts.loop.has_work)
        with monkeypatch.context() as failing:
            failing.setattr(zmq.asyncio.Socket, "send", broken)
            for call in (client.generate(generation_request("other")), client.counts(["running"]), client.stats()):
                with pytest.raises(EngineUnavailable, match="cannot be reached"):
                    await call
            assert set(client._sequences) == {"running"}
            await client.settled(["running"])
            await running.close()
        await eventually(lambda: is_given_back(engine))
        assert await answer(await client.generate(generation_request("next"))) != ("", None)

    with_client(engine, byte_model_dir, scenario)


def test_garbage_on_the_socket_does_not_disturb_the_engine(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        assert client._socket is not None
        for frame in (b"", b"\xc1", b"\x80", b"{}" * 1000):
            await client._socket.send(frame)
        await client._socket.send_multipart([b"two", b"frames"])
        assert (await answer(await client.generate(generation_request())))[1] == "length"

    with_client(start_engine(), byte_model_dir, scenario)


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
