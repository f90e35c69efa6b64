"""What the gateway adds to the engine, and what it costs: a real gateway on Postgres and Redis, limits and metering on.

    python benchmarks/gateway.py [--quick] [--json FILE]

The engine is scripted: it answers at once and at no cost, so that what is measured is the gateway. "Directly" is the
same request over the engine's own socket, by a client that does nothing else; both are asked in turn, one at a time, so
that whatever else the machine does meets both. What is added is the difference of the medians, and of the 99th
percentiles. CPU time is that of the gateway's process alone, as the system counts it.

Where something is promised, its target stands beside the figure. The rate is what the machine's cores give to gateway,
database, engine and load together: it is reported, and nothing is promised of it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import zmq
from figures import Figure, arguments, at_most, present
from http_load import Answer, Connection, asked_by_many

from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
    Hello,
    Step,
    Submit,
    decode_engine,
    encode,
)
from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import NoticeBoard
from lorikeet_platform.auth.pepper import load_pepper

sys.path.append(str(Path(__file__).parents[1]))

from tests.support.platform_parts import Tenant
from tests.support.served_model import model_to_talk_to
from tests.support.stack import Stack, running_stack
from tests.support.stack_place import Place, chat_body, on_stack

CHAT = "/v1/chat/completions"
PROMPT = "What is the capital of France?"
STREAMS, CHUNKS, PACE_S = 8, 100, 0.005
CONNECTIONS = 16


class DirectEngine:
    """The engine's socket with nothing around it."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.identity = uuid.uuid4().hex.encode()
        self._socket.connect(endpoint)
        self._socket.send(encode(Hello(PROTOCOL_VERSION)))
        self._socket.recv()

    def answer(self, n_tokens: int) -> Answer:
        """Asks for an answer of so many tokens and waits for all of them."""
        answer = Answer(time.perf_counter())
        self._socket.send(encode(_submit(n_tokens)))
        n_left = n_tokens
        while n_left:
            step = decode_engine(self._socket.recv())
            if isinstance(step, Step):
                answer.first_content_s = answer.first_content_s or time.perf_counter()
                n_left -= len(step.tokens)
        answer.ended_s = time.perf_counter()
        return answer

    def close(self) -> None:
        self._context.destroy(linger=0)


def _submit(n_tokens: int) -> Submit:
    return Submit(
        request_id=uuid.uuid4().hex,
        tenant="nobody",
        weight=1.0,
        cache_salt=b"",
        n=1,
        prompt=[ord(character) for character in PROMPT],
        max_tokens=n_tokens,
        temperature=0.0,
        top_p=1.0,
        top_k=0,
        seed=0,
        adapter="",
        caps=[],
    )


def cpu_s(pid: int) -> float:
    """Seconds that all threads of a process have had of the processors (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def first_token(stack: Stack, tenant: Tenant, n: int) -> list[Figure]:
    """One request at a time, directly and through the gateway in turn."""
    direct, through = [], []
    body = chat_body(PROMPT, stream=True, max_tokens=2)
    with (
        closing(DirectEngine(f"ipc://{stack.folder}/engine")) as engine,
        closing(Connection(stack.gateways[0].api, tenant.secret)) as gateway,
    ):
        for count in range(n + n // 10):
            of_engine, of_gateway = engine.answer(2), gateway.post(CHAT, body)
            assert of_gateway.status == 200, of_gateway.body
            if count >= n // 10:  # the first ones fill caches
                direct.append(of_engine.first_content_s - of_engine.asked_s)
                through.append(of_gateway.first_content_s - of_gateway.asked_s)
    return [
        Figure("first token, directly, p50", median(direct) * 1e3, "ms"),
        Figure("first token, through the gateway, p50", median(through) * 1e3, "ms"),
        at_most("added to the first token, p50", (median(through) - median(direct)) * 1e3, "ms", 5.0),
        at_most(
            "added to the first token, p99", (percentile(through, 0.99) - percentile(direct, 0.99)) * 1e3, "ms", 15.0
        ),
    ]


def chunks(stack: Stack, tenant: Tenant, seconds: float) -> list[Figure]:
    """Streams side by side, each of many chunks that come one by one, against as many of two chunks.

    A token waits for the one before, as a real engine's do, or the gateway would be given many at once.
    """
    stack.engine.script(tenant.id, tokens=0, pace_s=PACE_S)
    used = {}
    for n_chunks in (2, CHUNKS):
        load = _loaded(stack, tenant, chat_body(PROMPT, stream=True, max_tokens=n_chunks), STREAMS, seconds)
        used[n_chunks] = load.cpu_s
    stack.engine.script(tenant.id, pace_s=0.0)
    return [at_most("CPU of a streamed chunk", (used[CHUNKS] - used[2]) / (CHUNKS - 2) * 1e6, "us", 60.0)]


@dataclass(frozen=True)
class Load:
    """What a closed loop of requests took: the gateway's CPU seconds for one, how many a second, their latencies."""

    cpu_s: float
    rate: float
    latencies_s: list[float]


def _loaded(stack: Stack, tenant: Tenant, body: dict[str, object], connections: int, seconds: float) -> Load:
    gateway = stack.gateways[0]

    def connect(_index: int) -> Connection:
        return Connection(gateway.api, tenant.secret)

    def ask(connection: Connection) -> Answer:
        answer = connection.post(CHAT, body)
        assert answer.status == 200, answer.body
        return answer

    asked_by_many(connect, ask, connections=connections, seconds=0.5)
    began_s, used_s = time.perf_counter(), cpu_s(gateway.process.pid)
    answers = asked_by_many(connect, ask, connections=connections, seconds=seconds)
    time.sleep(0.3)  # what is settled after the answer belongs to it
    used_s, took_s = cpu_s(gateway.process.pid) - used_s, time.perf_counter() - began_s - 0.3
    return Load(used_s / len(answers), len(answers) / took_s, [answer.ended_s - answer.asked_s for answer in answers])


def short_requests(stack: Stack, tenant: Tenant, seconds: float) -> list[Figure]:
    load = _loaded(stack, tenant, chat_body(PROMPT, max_tokens=4), CONNECTIONS, seconds)
    return [
        at_most("CPU of a short request", load.cpu_s * 1e3, "ms", 3.0),
        Figure(f"short requests, {CONNECTIONS} at once", load.rate, "1/s"),
        Figure("their latency, p50", median(load.latencies_s) * 1e3, "ms"),
        Figure("their latency, p99", percentile(load.latencies_s, 0.99) * 1e3, "ms"),
    ]


def key_check(place: Place, stack: Stack, tenant: Tenant, n: int) -> list[Figure]:
    """In this process, over the stack's own database; the first check fills the cache."""
    authenticator = Authenticator(place.db, load_pepper(stack.folder / "data"), NoticeBoard(place.db))
    header = f"Bearer {tenant.secret}"

    async def check(n_checks: int) -> float:
        began_s = time.perf_counter()
        for _ in range(n_checks):
            await authenticator.authenticate(header)
        return (time.perf_counter() - began_s) / n_checks

    async def best_of_five() -> float:
        await check(1)
        return min([await check(n) for _ in range(5)])

    best = asyncio.run(best_of_five())
    return [at_most("key check, cached", best * 1e6, "us", 20.0)]


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="lk-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may be another user
        (folder / "model").mkdir()
        model = model_to_talk_to(folder / "model")
        with running_stack(folder, model, n_gateways=1, with_worker=False) as stack, on_stack(stack) as place:
            tenant = place.tenant()
            place.plenty(tenant)
            stack.engine.script(tenant.id, tokens=0)
            return [
                *first_token(stack, tenant, 100 if quick else 1000),
                *chunks(stack, tenant, 2.0 if quick else 8.0),
                *short_requests(stack, tenant, 3.0 if quick else 15.0),
                *key_check(place, stack, tenant, 2_000 if quick else 20_000),
            ]


def main() -> None:
    options = arguments("What the gateway adds to the engine, and what it costs.").parse_args()
    present("The gateway", measure(quick=options.quick), options.json)


if __name__ == "__main__":
    main()
