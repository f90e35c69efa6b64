"""What a caller is told when the engine does not take a request: which limit, when to come back, and no bill."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from lorikeet_engine.client import Delta
from lorikeet_engine.errors import (
    AdapterUnavailable,
    ConcurrencyLimited,
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineError,
    EngineFailure,
    EngineUnavailable,
    InvalidRequest,
    Overloaded,
    QueueLimited,
    TenantLimited,
)
from tests.platform.inference.conftest import CHAT, Gateway
from tests.support.platform_parts import limit_tenant

OWN = TenantLimited("your own limit: 128 of its requests wait already", retry_after_s=3.2, reason="tenant_queue")
FULL = Overloaded("the engine is full: 256 requests wait", retry_after_s=0.2, reason="engine_queue")
LOADING = Overloaded("the adapter is loading: the first token is expected in 61.0 s", retry_after_s=60.0)
TOO_LONG = ContextLengthExceeded("the prompt has too many tokens")
WRONG = InvalidRequest("top_k: must not be above the vocabulary")
LATE = DeadlineExceeded("no first token within 10 s", retry_after_s=7.0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind", "retry_after", "outcome"),
    [
        (OWN, 429, "rate_limit_error", (4, 3200), "shed"),
        (FULL, 503, "server_error", (1, 200), "shed"),
        (LOADING, 503, "server_error", (60, 60_000), "shed"),
        (LATE, 504, "server_error", (7, 7000), "deadline"),
        (Overloaded("no room now"), 503, "server_error", (1, 1000), "shed"),
    ],
)
def test_a_refusal_names_the_limit_says_when_to_come_back_and_bills_nothing(
    gateway: Gateway,
    error: EngineError,
    status: int,
    kind: str,
    retry_after: tuple[int, int],
    outcome: str,
    stream: bool,
) -> None:
    gateway.engine.scripts.append([error])
    response = gateway.post({**CHAT, "stream": stream, "n": 2})
    body = response.json()["error"]
    assert (response.status_code, body["type"], body["code"], body["message"]) == (
        status,
        kind,
        error.code,
        error.message,
    )
    seconds, exactly_ms = retry_after
    assert response.headers["retry-after"] == str(seconds)
    assert response.headers["retry-after-ms"] == str(exactly_ms)
    assert response.headers["x-should-retry"] == "true"
    [record] = gateway.usage()
    assert (record.state, record.outcome, record.prompt_tokens, record.completion_tokens) == ("settled", outcome, 0, 0)


@pytest.mark.parametrize("error", [ConcurrencyLimited("none may run"), QueueLimited("none may wait")])
def test_a_limit_that_time_does_not_help_with_names_no_time(gateway: Gateway, error: EngineError) -> None:
    gateway.engine.scripts.append([error])
    response = gateway.post(CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (429, error.code)
    assert response.headers["x-should-retry"] == "false"
    assert "retry-after" not in response.headers


@pytest.mark.parametrize("body", [CHAT, {"model": CHAT["model"]}])
def test_where_nothing_may_wait_nothing_is_booked(gateway: Gateway, body: object) -> None:
    limit_tenant(gateway.db, gateway.tenants["harbour"], queue_depth=0)
    response = gateway.post(body)
    assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_limit_exceeded")
    assert response.headers["x-should-retry"] == "false"
    assert (gateway.usage(), gateway.engine.generations) == ([], [])


def test_a_body_that_ends_its_connection_ends_it_too_when_its_caller_asks_too_often(gateway: Gateway) -> None:
    limit_tenant(gateway.db, gateway.tenants["harbour"], rpm=(60, 1))

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536

    for status in (413, 429):
        response = gateway.post(endless())
        assert (response.status_code, response.headers["connection"]) == (status, "close")
        assert response.headers["x-ratelimit-remaining-requests"] == "0"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TOO_LONG, "shed"),
        (WRONG, "shed"),
        (AdapterUnavailable("its image is missing"), "server_error"),
        (EngineFailure("a step failed"), "server_error"),
        (EngineUnavailable("gone"), "server_error"),
    ],
)
def test_a_callers_mistake_is_no_failure_of_the_version_and_an_adapter_that_cannot_be_loaded_is(
    gateway: Gateway, error: EngineError, outcome: str
) -> None:
    gateway.engine.scripts.append([error])
    assert gateway.post(CHAT).status_code >= 400
    assert [record.outcome for record in gateway.usage()] == [outcome]


def test_what_was_answered_before_a_late_error_is_billed(gateway: Gateway) -> None:
    gateway.engine.scripts.append([Delta("Hel"), LATE])
    response = gateway.post({**CHAT, "stream": True})
    assert json.loads(response.text.split("data: ")[-1])["error"]["code"] == "deadline_exceeded"
    assert [(record.outcome, record.completion_tokens) for record in gateway.usage()] == [("deadline", 1)]
