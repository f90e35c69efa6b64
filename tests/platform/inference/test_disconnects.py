"""A caller that goes away, a server that shuts down: the work stops, and the record is settled once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from starlette.types import Message

from lorikeet_engine.client import Delta
from lorikeet_platform.inference.running.turns import to_its_end
from tests.platform.inference.conftest import CHAT, Gateway
from tests.support.platform_parts import limit_tenant
from tests.support.scripted_engine import Hang, ScriptedGeneration, WordTokenizer


class Connection:
    """One raw ASGI request, whose caller hangs up when told, and sends its body when told."""

    def __init__(self, gateway: Gateway, body: dict[str, Any], *, hold_body: bool = False) -> None:
        content = self._content = json.dumps(body).encode()
        headers = [
            (b"authorization", f"Bearer {gateway.keys['harbour']}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
        ]
        path = "/v1/chat/completions"
        self.sent: list[Message] = []
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        if not hold_body:
            self.send_body()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.task = asyncio.ensure_future(gateway.app(scope, self._incoming.get, self._send))

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    def send_body(self) -> None:
        self._incoming.put_nowait({"type": "http.request", "body": self._content})

    def send_half_of_the_body(self) -> None:
        half = self._content[: len(self._content) // 2]
        self._incoming.put_nowait({"type": "http.request", "body": half, "more_body": True})

    def hang_up(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def until_sent(self, n_messages: int) -> None:
        async with asyncio.timeout(5):
            while len(self.sent) < n_messages:
                await asyncio.sleep(0.01)

    def text(self) -> str:
        return b"".join(m["body"] for m in self.sent if m["type"] == "http.response.body").decode()


class SlowTokenizer(WordTokenizer):
    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        self.is_asked.set()
        assert self.may_answer.wait(10)
        return super().encode_chat(messages)


async def until_generating(gateway: Gateway) -> None:
    async with asyncio.timeout(5):
        while not (gateway.engine.generations and gateway.engine.generations[0].n_played):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_connection_stops_the_engine_and_settles_what_was_made(gateway: Gateway, stream: bool) -> None:
    gateway.engine.scripts.append([Delta("Hel"), Delta("lo"), Hang()])

    async def scenario() -> None:
        connection = Connection(gateway, {**CHAT, "stream": stream})
        await until_generating(gateway)
        connection.hang_up()
        await asyncio.wait_for(connection.task, 5)

    asyncio.run(scenario())
    assert [(r.state, r.outcome, r.completion_tokens) for r in gateway.usage()] == [("settled", "client_cancelled", 2)]
    assert gateway.engine.generations[0].n_closed == 1


def test_a_cancelled_task_settles_as_well(gateway: Gateway) -> None:
    gateway.engine.scripts.append([Delta("Hel"), Hang()])

    async def scenario() -> None:
        connection = Connection(gateway, {**CHAT, "stream": True})
        await connection.until_sent(2)
        connection.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connection.task

    asyncio.run(scenario())
    assert [(r.state, r.completion_tokens) for r in gateway.usage()] == [("settled", 1)]


def test_a_caller_who_leaves_while_the_record_is_opened_leaves_no_open_record(gateway: Gateway) -> None:
    async def scenario() -> None:
        for delay_s in (0.0, 0.001, 0.003, 0.01):
            connection = Connection(gateway, CHAT)
            await asyncio.sleep(delay_s)
            connection.hang_up()
            await asyncio.wait_for(connection.task, 5)

    asyncio.run(scenario())
    assert all(record.state == "settled" for record in gateway.usage())


def test_r_20_a_caller_who_leaves_in_the_middle_of_its_body_has_asked_once(gateway: Gateway) -> None:
    limit_tenant(gateway.db, gateway.tenants["harbour"], rpm=(60, 2))

    async def scenario() -> None:
        connection = Connection(gateway, CHAT, hold_body=True)
        connection.send_half_of_the_body()
        connection.hang_up()
        await asyncio.wait_for(connection.task, 5)

    asyncio.run(scenario())
    assert gateway.post(CHAT).headers["x-ratelimit-remaining-requests"] == "0"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_closed_is_billed_and_its_place_is_free(
    gateway: Gateway, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_tenant(gateway.db, gateway.tenants["harbour"], concurrent=1)

    async def close(_generation: ScriptedGeneration) -> None:
        raise OSError("no such socket")

    monkeypatch.setattr(ScriptedGeneration, "close", close)
    for _ in range(2):
        assert gateway.post({**CHAT, "stream": stream}).status_code == 200
    assert [(record.state, record.outcome, record.completion_tokens) for record in gateway.usage()] == [
        ("settled", "ok", 3)
    ] * 2


def test_a_request_that_was_being_prepared_when_the_shutdown_began_is_refused_and_not_left_open(
    gateway: Gateway,
) -> None:
    tokenizer = SlowTokenizer()
    gateway.engine.tokenizer = tokenizer

    async def scenario() -> Connection:
        connection = Connection(gateway, CHAT)
        while not tokenizer.is_asked.is_set():
            await asyncio.sleep(0.005)
        await gateway.service.drain(5)
        tokenizer.may_answer.set()
        await asyncio.wait_for(connection.task, 5)
        await gateway.service.drain(0)
        await gateway.service.close()
        return connection

    connection = asyncio.run(scenario())
    assert connection.sent[0]["status"] == 503
    assert json.loads(connection.text())["error"]["code"] == "draining"
    assert gateway.usage() == []
    assert gateway.engine.generations == []


def test_shutting_down_tells_the_streams_that_are_left(gateway: Gateway) -> None:
    gateway.engine.scripts.append([Delta("Hel"), Hang()])

    async def scenario() -> Connection:
        connection = Connection(gateway, {**CHAT, "stream": True})
        await connection.until_sent(2)
        await asyncio.wait_for(gateway.service.drain(0.05), 5)
        await asyncio.wait_for(connection.task, 5)
        return connection

    text = asyncio.run(scenario()).text()
    assert json.loads(text.split("data: ")[-1])["error"]["code"] == "draining"
    assert "[DONE]" not in text
    assert [(record.state, record.outcome) for record in gateway.usage()] == [("settled", "shed")]


def test_shutting_down_lets_short_answers_finish_and_refuses_new_ones(gateway: Gateway) -> None:
    async def scenario() -> tuple[Connection, Connection]:
        first = Connection(gateway, CHAT)
        await until_generating(gateway)
        await asyncio.wait_for(gateway.service.drain(5), 5)
        await first.task
        second = Connection(gateway, CHAT)
        await second.task
        return first, second

    first, second = asyncio.run(scenario())
    assert [connection.sent[0]["status"] for connection in (first, second)] == [200, 503]


def test_work_that_must_end_ends_through_repeated_cancellation() -> None:
    finished: list[bool] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        finished.append(True)

    async def scenario() -> None:
        task = asyncio.ensure_future(to_its_end(work()))
        for _ in range(3):
            await asyncio.sleep(0.005)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert finished == [True]
