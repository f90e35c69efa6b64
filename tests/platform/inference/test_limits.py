"""Limits on the inference routes: what a request may ask for, what it costs, and what its caller is told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest

from lorikeet_engine.client import Cap, Delta
from lorikeet_engine.errors import Overloaded
from tests.platform.inference.conftest import BASE, CHAT, Gateway
from tests.support.platform_parts import limit_key, limit_tenant

MESSAGES: list[Any] = [{"role": "user", "content": "one two three"}]  # four tokens
RATE_HEADERS = {
    f"x-ratelimit-{what}-{unit}" for what in ("limit", "remaining", "reset") for unit in ("requests", "tokens")
}


def limited(gateway: Gateway, **values: int | tuple[int, int]) -> None:
    limit_tenant(gateway.db, gateway.tenants["harbour"], **values)


def code(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def ask(gateway: Gateway, scenario: Callable[[openai.AsyncOpenAI], Awaitable[None]], *, max_retries: int) -> int:
    """Runs `scenario` with OpenAI's own client; returns how many requests it sent."""
    sent = 0

    async def count(_request: httpx.Request) -> None:
        nonlocal sent
        sent += 1

    async def run() -> None:
        transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, event_hooks={"request": [count]}) as http:
            api = openai.AsyncOpenAI(
                base_url="http://gateway/v1", api_key=gateway.keys["harbour"], http_client=http, max_retries=max_retries
            )
            await scenario(api)

    asyncio.run(run())
    return sent


@pytest.mark.parametrize("stream", [False, True])
def test_every_answer_says_how_the_callers_rates_stand(gateway: Gateway, stream: bool) -> None:
    limited(gateway, rpm=(60, 10), tpm=(6000, 600))
    headers = gateway.post({**CHAT, "stream": stream, "max_tokens": 6, "n": 2}).headers
    assert headers["x-ratelimit-limit-requests"] == "60"
    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert headers["x-ratelimit-limit-tokens"] == "6000"
    assert headers["x-ratelimit-remaining-tokens"] == str(600 - 4 - 2 * 6)
    assert headers["x-ratelimit-reset-requests"] in ("1s", "999ms", "998ms", "997ms", "996ms", "995ms")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**CHAT, "model": "nobody"}, 404),
        ({**CHAT, "colour": "red"}, 400),
        ("{", 400),
        ({**CHAT, "max_tokens": 10_000}, 400),
        ({**CHAT, "n": 5}, 400),
    ],
)
def test_r_20_what_is_refused_counts_for_the_rate_and_costs_nothing_else(
    gateway: Gateway, body: object, status: int
) -> None:
    limited(gateway, rpm=(60, 2), tpm=(6000, 600), max_n=4)
    response = gateway.post(body)
    assert response.status_code == status
    assert response.headers.keys() >= RATE_HEADERS
    assert response.headers["x-ratelimit-remaining-requests"] == "1"
    assert response.headers["x-ratelimit-remaining-tokens"] == "600"
    gateway.post(body)
    assert code(gateway.post(body)) == (429, "rate_limit_exceeded", "requests")
    assert gateway.usage() == []


def test_what_the_engine_turns_away_gives_its_tokens_back(gateway: Gateway) -> None:
    limited(gateway, tpm=(600, 600))
    gateway.engine.scripts.append([Overloaded("no room now")])
    refused = gateway.post({**CHAT, "max_tokens": 50})
    assert (refused.status_code, refused.headers["x-ratelimit-remaining-tokens"]) == (503, str(600 - 54))
    assert gateway.post({**CHAT, "max_tokens": 50}).headers["x-ratelimit-remaining-tokens"] == str(600 - 54)


def test_n_65_tokens_of_an_answer_that_stopped_early_are_there_for_the_next(gateway: Gateway) -> None:
    limited(gateway, tpm=(60, 60))
    assert gateway.post({**CHAT, "max_tokens": 50}).status_code == 200  # uses 4 and 3
    assert gateway.post({**CHAT, "max_tokens": 49}).status_code == 200
    refused = gateway.post({**CHAT, "max_tokens": 50})
    assert code(refused) == (429, "rate_limit_exceeded", "tokens")
    wait_ms = int(refused.headers["retry-after-ms"])
    assert 0 < wait_ms <= 8000
    assert int(refused.headers["retry-after"]) == -(-wait_ms // 1000)
    assert len(gateway.usage()) == 2


def test_a_refused_budget_gives_place_and_tokens_back(gateway: Gateway) -> None:
    limited(gateway, monthly_tokens=10, concurrent=1, tpm=(600, 600))
    for _ in range(2):
        refused = gateway.post({**CHAT, "max_tokens": 50})
        assert code(refused) == (429, "insufficient_quota", None)
        assert (refused.headers["x-should-retry"], "retry-after" in refused.headers) == ("false", False)
    assert gateway.post({**CHAT, "max_tokens": 6}).headers["x-ratelimit-remaining-tokens"] == str(600 - 10)


@pytest.mark.parametrize(
    ("limits", "change", "expected", "says"),
    [
        ({"max_n": 2}, {"n": 3}, (400, "invalid_value", "n"), "the tenant's limit is 2"),
        ({"max_output_tokens": 5}, {"max_tokens": 6}, (400, "invalid_value", "max_tokens"), "the tenant's limit is 5"),
        ({"max_output_tokens": 0}, {}, (400, "invalid_value", "max_tokens"), "the tenant's limit is 0"),
        ({"max_context": 20}, {"max_tokens": 17}, (400, "context_length_exceeded", "max_tokens"), "limit of 20"),
        ({"max_context": 3}, {}, (400, "context_length_exceeded", "messages"), "the tenant's limit of 3"),
        ({"tpm": 40}, {"max_tokens": 50}, (400, "request_exceeds_tpm", "max_tokens"), "lets 40 through"),
        ({"rpm": 0}, {}, (429, "rate_limit_exceeded", "requests"), "limit is 0"),
        ({"tpm": 0}, {}, (429, "rate_limit_exceeded", "tokens"), "limit is 0"),
        ({"concurrent": 0}, {}, (429, "concurrency_limit_exceeded", None), "limit is 0"),
        ({"monthly_tokens": 0}, {}, (429, "insufficient_quota", None), "0 tokens a month"),
    ],
)
def test_a_request_beyond_a_limit_is_told_which_and_whose(
    gateway: Gateway, limits: dict[str, int], change: dict[str, Any], expected: tuple[int, str, str | None], says: str
) -> None:
    limited(gateway, **limits)
    refused = gateway.post({**CHAT, **change})
    assert code(refused) == expected
    assert says in refused.json()["error"]["message"]
    assert gateway.usage() == []
    if refused.status_code == 429:
        assert (refused.headers["x-should-retry"], "retry-after" in refused.headers) == ("false", False)


@pytest.mark.parametrize(
    ("max_tokens", "status", "refused_by"),
    [
        (0, 400, "invalid_value"),
        (-1, 400, "invalid_value"),
        (2**31, 400, "invalid_value"),
        (61, 400, "context_length_exceeded"),
        (60, 200, None),
    ],
)
def test_n_52_max_tokens_at_the_edges_of_the_context(
    gateway: Gateway, max_tokens: int, status: int, refused_by: str | None
) -> None:
    response = gateway.post({**CHAT, "max_tokens": max_tokens})
    assert response.status_code == status
    if refused_by is not None:
        assert response.json()["error"]["code"] == refused_by
    if refused_by == "context_length_exceeded":
        message = response.json()["error"]["message"]
        assert all(number in message for number in ("4 tokens", "61", "64 tokens"))


@pytest.mark.parametrize(
    ("limits", "longest"),
    [({}, 60), ({"max_output_tokens": 7}, 7), ({"max_context": 20}, 16), ({"max_output_tokens": 99}, 60)],
)
def test_without_a_limit_of_its_own_an_answer_is_as_long_as_it_may_be(
    gateway: Gateway, limits: dict[str, int], longest: int
) -> None:
    limited(gateway, **limits)
    assert gateway.post(CHAT).status_code == 200
    assert gateway.engine.generations[-1].request.max_tokens == longest


def test_the_engine_is_told_the_caps_of_tenant_and_key(gateway: Gateway) -> None:
    limited(gateway, concurrent=20, queue_depth=10)
    gateway.post(CHAT)
    assert gateway.engine.generations[-1].request.caps == (Cap(gateway.tenants["harbour"], 20, 10),)


def test_a_keys_own_caps_never_go_beyond_the_tenants(gateway: Gateway) -> None:
    limited(gateway, concurrent=20, queue_depth=10)
    tenant, key = gateway.tenants["harbour"], gateway.key_ids["harbour"]
    limit_key(gateway.db, tenant, key, concurrent=3)
    gateway.post(CHAT)
    assert gateway.engine.generations[-1].request.caps == (Cap(tenant, 20, 10), Cap(key, 3, 10))


def test_a_key_of_its_own_limits_leaves_the_rest_to_the_tenants_other_callers(gateway: Gateway) -> None:
    limit_key(gateway.db, gateway.tenants["harbour"], gateway.key_ids["harbour"], rpm=(60, 1))
    assert gateway.post(CHAT).status_code == 200
    refused = gateway.post(CHAT)
    assert code(refused) == (429, "rate_limit_exceeded", "requests")
    assert "The key's limit" in refused.json()["error"]["message"]
    assert gateway.post(CHAT, tenant="orchard").status_code == 200


def test_places_are_free_again_however_a_request_ends(gateway: Gateway) -> None:
    limited(gateway, concurrent=1)
    gateway.engine.scripts += [[Overloaded("full")], [Delta("x"), RuntimeError("bug")]]
    statuses = [gateway.post(CHAT).status_code for _ in range(3)]
    assert statuses == [503, 500, 200]
    assert json.loads(gateway.post({**CHAT, "n": 2}).content)["choices"]


def test_openais_client_waits_as_long_as_it_is_told_and_not_longer(gateway: Gateway) -> None:
    limited(gateway, rpm=(600, 1))

    async def scenario(api: openai.AsyncOpenAI) -> None:
        await api.chat.completions.create(model=BASE, messages=MESSAGES)
        started = time.monotonic()
        raw = await api.chat.completions.with_raw_response.create(model=BASE, messages=MESSAGES)
        assert time.monotonic() - started < 2  # not the half second and more that it would choose by itself, doubled
        assert raw.headers["x-ratelimit-limit-requests"] == "600"

    assert ask(gateway, scenario, max_retries=1) in (2, 3)


def test_openais_client_does_not_repeat_what_waiting_does_not_help(gateway: Gateway) -> None:
    limited(gateway, rpm=0)

    async def scenario(api: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.RateLimitError) as refused:
            await api.chat.completions.create(model=BASE, messages=MESSAGES)
        assert refused.value.code == "rate_limit_exceeded"

    assert ask(gateway, scenario, max_retries=5) == 1
