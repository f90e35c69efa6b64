"""N-72: what a hostile peer sends the engine ends no engine and keeps no other client from its answers."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from lorikeet_engine.client import EngineClient, SamplingParams
from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
    Abort,
    AskAdapter,
    AskCounts,
    AskStats,
    Cap,
    Hello,
    Retire,
    Settled,
    Submit,
    Warm,
    Welcome,
    decode_engine,
    encode,
)
from lorikeet_engine.server import MAX_FRAME_BYTES
from lorikeet_engine.socket_keys import SocketKeys, secure_client
from tests.engine.socket.conftest import RunningEngine, StartEngine, answer, generation_request, with_client
from tests.support.ports import free_port
from tests.support.scripted_engine_parts import answer_alone

N_FRAMES = 100_000
SUBMIT = Submit(
    request_id="f",
    tenant="mallory",
    weight=1.0,
    cache_salt=b"salt",
    n=2,
    prompt=[1, 2, 3],
    max_tokens=3,
    temperature=1.0,
    top_p=0.5,
    top_k=4,
    seed=5,
    adapter="red",
    caps=[Cap("mallory", 3, 2)],
    ignore_eos=True,
)
MESSAGES = [
    SUBMIT,
    Hello(PROTOCOL_VERSION),
    Abort("f", 1),
    Settled(["f", "g"]),
    AskCounts(1, ["f"]),
    AskCounts(2, []),
    Retire("mallory", "red", True),
    Warm(3, "mallory", "blue"),
    AskStats(4),
    AskStats(4, True),
    AskAdapter(5, "anna", "red"),
]
EXTREMES: tuple[Any, ...] = (
    0,
    -1,
    1,
    2**31,
    2**63 - 1,
    -(2**63),
    1e308,
    -1e308,
    float("inf"),
    float("nan"),
    "",
    "x" * 5000,
    [],
    None,
)


def random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 2, 7, 64, 500]))


def truncated(chance: random.Random) -> bytes:
    frame = encode(chance.choice(MESSAGES))
    return frame[: chance.randrange(len(frame))]


def flipped(chance: random.Random) -> bytes:
    frame = bytearray(encode(chance.choice(MESSAGES)))
    for _ in range(chance.randint(1, 4)):
        frame[chance.randrange(len(frame))] = chance.randrange(256)
    return bytes(frame)


def extreme(chance: random.Random) -> bytes:
    """A message with a value that no client sends."""
    fields = msgspec.to_builtins(chance.choice(MESSAGES), builtin_types=(bytes,))
    name = chance.choice(list(fields))
    fields[name] = chance.choice(EXTREMES)
    return msgspec.msgpack.encode(fields)


def unknown(chance: random.Random) -> bytes:
    return msgspec.msgpack.encode(
        {"type": chance.choice(["", "pickle", "hello ", "drain"]), "version": PROTOCOL_VERSION}
    )


def announcing_too_much(chance: random.Random) -> bytes:
    """Containers and strings that are said to be longer than the frame, and nesting without an end."""
    marker = chance.choice([b"\xdf", b"\xdd", b"\xdb", b"\xc6"])  # map, array, string and bytes with 32-bit lengths
    deep = b"\x82\xa4type\xa5hello\xa1x" + b"\x91" * chance.choice([1, 100, 100_000])
    return chance.choice(
        [marker + struct.pack(">I", 2**32 - 1), b"\x82\xa4type\xa6submit" + marker + b"\xff" * 4, deep]
    )


def pickled(chance: random.Random) -> bytes:
    """Whoever unpickled it would be told so."""
    return pickle.dumps(Bomb(), protocol=chance.choice([0, 2, 5]))


class Bomb:
    went_off = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return ignite, ()


def ignite() -> None:
    Bomb.went_off = True


KINDS: tuple[Callable[[random.Random], bytes], ...] = (random_bytes, truncated, flipped, extreme, unknown, pickled)


@pytest.fixture
def peer() -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    with context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvhwm = 10  # it does not listen
        yield socket
    context.term()


def assert_serves(engine: RunningEngine, model_dir: Path, **options: object) -> None:
    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request("fine"))
        assert (await answer(generation))[1] == "length"
        assert generation.tokens() == tuple(answer_alone((5, 6, 7), 6, None))

    with_client(engine, model_dir, scenario, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_n_72_frames_of_one_kind_leave_the_engine_serving(
    start_engine: StartEngine, byte_model_dir: Path, peer: zmq.Socket[bytes], kind: Callable[[random.Random], bytes]
) -> None:
    engine, chance = start_engine(), random.Random(72)
    peer.connect(engine.endpoint)
    for _ in range(3000):
        peer.send(kind(chance))
    peer.send_multipart([b"two", b"frames"])
    peer.send(encode(Hello(PROTOCOL_VERSION)))
    assert_serves(engine, byte_model_dir)
    assert not Bomb.went_off


def test_n_72_lengths_that_are_not_there_and_nesting_without_end_are_dropped(
    start_engine: StartEngine, byte_model_dir: Path, peer: zmq.Socket[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    engine, chance = start_engine(), random.Random(72)
    peer.connect(engine.endpoint)
    for _ in range(200):
        peer.send(announcing_too_much(chance))
    assert_serves(engine, byte_model_dir)
    assert "were dropped" in caplog.text


@pytest.mark.slow
def test_n_72_a_hundred_thousand_frames_keep_no_other_client_from_its_answer(
    start_engine: StartEngine, byte_model_dir: Path, peer: zmq.Socket[bytes]
) -> None:
    engine, chance = start_engine(), random.Random(7)
    peer.connect(engine.endpoint)
    frames = [chance.choice(KINDS)(chance) for _ in range(2000)]

    async def scenario(client: EngineClient) -> None:
        n_sent, waits = 0, []
        while n_sent < N_FRAMES:
            generation = await client.generate(generation_request(f"r{n_sent}", sampling=SamplingParams()))
            began = time.monotonic()
            answering = asyncio.create_task(answer(generation))
            while not answering.done():
                for _ in range(500):
                    try:
                        peer.send(frames[n_sent % len(frames)], zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    n_sent += 1
                await asyncio.sleep(0)
            assert (await answering)[1] == "length"
            waits.append(time.monotonic() - began)
        assert max(waits) < 5.0

    with_client(engine, byte_model_dir, scenario)


def test_n_72_a_frame_that_is_too_long_costs_its_sender_the_connection(
    start_engine: StartEngine, byte_model_dir: Path, peer: zmq.Socket[bytes]
) -> None:
    engine = start_engine()
    monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    peer.connect(engine.endpoint)
    peer.send(encode(Hello(PROTOCOL_VERSION)))
    assert isinstance(decode_engine(peer.recv()), Welcome)
    peer.send(bytes(MAX_FRAME_BYTES + 1))
    assert monitor.poll(5000), "the engine did not hang up"
    peer.disable_monitor()
    assert_serves(engine, byte_model_dir)


@pytest.mark.parametrize("has_keys", [False, True], ids=["no keys", "keys of its own"])
def test_n_72_without_the_key_nothing_is_heard(
    start_engine: StartEngine, byte_model_dir: Path, peer: zmq.Socket[bytes], tmp_path: Path, has_keys: bool
) -> None:
    keys, chance = SocketKeys.generate(), random.Random(72)
    engine = start_engine(f"tcp://127.0.0.1:{free_port()}", keys=keys)
    if has_keys:
        secure_client(peer, SocketKeys(keys.engine_secret, SocketKeys.generate().client_secret))
    peer.connect(engine.endpoint)
    for frame in [encode(Hello(PROTOCOL_VERSION)), *(chance.choice(KINDS)(chance) for _ in range(500))]:
        with contextlib.suppress(zmq.Again):  # the engine hung up
            peer.send(frame, zmq.NOBLOCK)
    key_file = tmp_path / "socket.key"
    key_file.write_text(keys.text())
    assert_serves(engine, byte_model_dir, key_file=key_file)
    assert not peer.poll(200)
    assert len(engine.server._clients) == 1
