"""Answers end when their key is revoked or their tenant suspended: running ones with a word, others before a start."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from lorikeet_engine.client import Delta
from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.inference.running.answering import EndCode
from tests.platform.inference.conftest import CHAT, Gateway
from tests.platform.inference.test_disconnects import Connection, until_generating
from tests.support.scripted_engine import Hang

SLOW = (Delta("Hel"), Hang())


def last_error(connection: Connection) -> str:
    text = connection.text()
    assert "[DONE]" not in text
    code: str = json.loads(text.split("data: ")[-1])["error"]["code"]
    return code


@pytest.mark.parametrize("from_a_thread", [False, True])
@pytest.mark.parametrize(("of_key", "code"), [(True, "key_revoked"), (False, "tenant_suspended")])
def test_a_stream_ends_with_a_frame_that_says_why(
    gateway: Gateway, of_key: bool, code: EndCode, from_a_thread: bool
) -> None:
    gateway.engine.scripts.append(SLOW)
    tenant, key = gateway.tenants["harbour"], gateway.key_ids["harbour"] if of_key else None

    async def scenario() -> Connection:
        connection = Connection(gateway, {**CHAT, "stream": True})
        await connection.until_sent(2)
        if from_a_thread:
            thread = threading.Thread(target=gateway.service.end_running, args=(tenant, key, code))
            thread.start()
            thread.join()
        else:
            gateway.service.end_running(tenant, key, code)
        await asyncio.wait_for(connection.task, 5)
        return connection

    connection = asyncio.run(scenario())
    assert last_error(connection) == code
    assert [(r.state, r.outcome, r.completion_tokens) for r in gateway.usage()] == [("settled", "revoked", 1)]
    assert gateway.engine.generations[-1].n_closed == 1


@pytest.mark.parametrize(
    ("of_key", "code", "status", "told"),
    [(True, "key_revoked", 401, "invalid_api_key"), (False, "tenant_suspended", 403, "tenant_suspended")],
)
def test_an_answer_of_which_nothing_was_sent_is_refused_like_a_new_request(
    gateway: Gateway, of_key: bool, code: EndCode, status: int, told: str
) -> None:
    gateway.engine.scripts.append(SLOW)
    tenant, key = gateway.tenants["harbour"], gateway.key_ids["harbour"] if of_key else None

    async def scenario() -> Connection:
        connection = Connection(gateway, CHAT)
        await until_generating(gateway)
        gateway.service.end_running(tenant, key, code)
        await asyncio.wait_for(connection.task, 5)
        return connection

    connection = asyncio.run(scenario())
    assert connection.sent[0]["status"] == status
    assert json.loads(connection.text())["error"]["code"] == told
    assert [(r.state, r.outcome) for r in gateway.usage()] == [("settled", "revoked")]


def test_others_go_on(gateway: Gateway) -> None:
    gateway.engine.scripts += [SLOW]

    async def scenario() -> Connection:
        connection = Connection(gateway, {**CHAT, "stream": True})
        await connection.until_sent(2)
        gateway.service.end_running(gateway.tenants["orchard"], None, "tenant_suspended")
        gateway.service.end_running(gateway.tenants["harbour"], "key_another", "key_revoked")
        await asyncio.sleep(0.05)
        assert not connection.task.done()
        connection.hang_up()
        await asyncio.wait_for(connection.task, 5)
        return connection

    assert "error" not in asyncio.run(scenario()).text()
    assert [r.outcome for r in gateway.usage()] == ["client_cancelled"]


def test_what_was_on_its_way_when_its_key_was_revoked_does_not_start(gateway: Gateway) -> None:
    """The request was authenticated, and its body is still to come."""

    async def scenario() -> Connection:
        connection = Connection(gateway, CHAT, hold_body=True)
        await asyncio.sleep(0.05)
        gateway.service.end_running(gateway.tenants["harbour"], None, "tenant_suspended")
        connection.send_body()
        await asyncio.wait_for(connection.task, 5)
        return connection

    connection = asyncio.run(scenario())
    assert connection.sent[0]["status"] == 403
    assert gateway.usage() == []
    assert gateway.engine.generations == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("end", ["key_revoked", "tenant_suspended", "draining"])
def test_what_is_ended_before_its_first_turn_is_told_so(
    gateway: Gateway, end: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer's task exists, and the loop has not come to it yet."""
    track, service = gateway.service.track, gateway.service
    tenant, key = gateway.tenants["harbour"], gateway.key_ids["harbour"]

    def end_at_once(task: asyncio.Task[None], principal: Principal) -> None:
        track(task, principal)
        if end == "key_revoked":
            service._answering._end(tenant, key, "key_revoked")
        elif end == "tenant_suspended":
            service._answering._end(tenant, None, "tenant_suspended")
        else:
            service._draining = True
            task.cancel()

    monkeypatch.setattr(service, "track", end_at_once)
    response = gateway.post({**CHAT, "stream": stream})
    told = {"key_revoked": (401, "invalid_api_key"), "tenant_suspended": (403, end), "draining": (503, end)}
    assert (response.status_code, response.json()["error"]["code"]) == told[end]
    assert "x-ratelimit-limit-requests" in response.headers
    assert gateway.usage() == []


def test_a_tenant_that_is_suspended_while_its_key_is_looked_up_is_not_answered(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticate = Authenticator.authenticate

    async def late(authenticator: Authenticator, *args: Any) -> Principal:
        caller = await authenticate(authenticator, *args)
        gateway.service.end_running(gateway.tenants["harbour"], None, "tenant_suspended")
        await asyncio.sleep(0.01)
        return caller

    monkeypatch.setattr(Authenticator, "authenticate", late)
    assert gateway.post(CHAT).status_code == 403
    assert gateway.post({"model": CHAT["model"], "prompt": "one"}, path="/v1/completions").status_code == 403
    monkeypatch.undo()
    assert gateway.post(CHAT).status_code == 200
    assert len(gateway.usage()) == 1


def test_a_tenant_that_is_back_is_answered_again_and_a_revoked_key_never(gateway: Gateway) -> None:
    gateway.service.end_running(gateway.tenants["harbour"], None, "tenant_suspended")
    assert gateway.post(CHAT).status_code == 200
    gateway.service.end_running(gateway.tenants["harbour"], gateway.key_ids["harbour"], "key_revoked")
    assert gateway.post(CHAT).status_code == 401
