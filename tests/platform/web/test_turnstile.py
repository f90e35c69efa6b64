"""Requests that ask no model: a few of a tenant at once, and not faster than its rpm; other tenants have their own."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import effective_limits
from lorikeet_platform.limits.gating.turnstile import AT_ONCE, LEAST, WAITING_AT_ONCE, Place, Turnstile
from lorikeet_platform.limits.standard import STANDARD
from tests.support.platform_parts import Tenant, Uploader
from tests.support.registry_port import refusal


def a_caller(tenant_id: str = "ten_1", rpm: tuple[int, int | None] = (6_000, 1_000)) -> Principal:
    return Principal(
        tenant_id=tenant_id,
        tenant_slug="harbour",
        tenant_status="active",
        key_id="key_1",
        subject_id="key_1",
        scopes=frozenset(),
        allowed_adapters=None,
        networks=(),
        limits=effective_limits({**STANDARD, "rpm": rpm}, {}, {}),
        expires_at=None,
        weight=1.0,
        cache_salt=b"",
    )


def enter_all(turnstile: Turnstile, caller: Principal, n: int) -> list[Place]:
    return [turnstile.enter(caller) for _ in range(n)]


def test_a_few_requests_of_a_tenant_are_inside_at_once_and_others_have_their_own() -> None:
    turnstile, caller = Turnstile(lambda: 0), a_caller()
    places = enter_all(turnstile, caller, AT_ONCE)
    with pytest.raises(PlatformError, match="concurrency_limit_exceeded") as refused:
        turnstile.enter(caller)
    assert refused.value.retry_after_ms == 1000
    turnstile.enter(a_caller("ten_2")).leave()
    places[0].leave()
    places[0].leave()  # a second time changes nothing
    turnstile.enter(caller).leave()
    for place in places:
        place.leave()
    assert len(turnstile) == 0


def test_whoever_waits_or_is_counted_elsewhere_leaves_room_and_the_waiting_are_bounded() -> None:
    turnstile, caller = Turnstile(lambda: 0), a_caller()
    place = turnstile.enter(caller)
    with place.counted_elsewhere():
        others = enter_all(turnstile, caller, AT_ONCE)
    for other in others:
        other.leave()
    with ExitStack() as waiting:
        for _ in range(WAITING_AT_ONCE):
            waiting.enter_context(turnstile.enter(caller).waiting())
        with pytest.raises(PlatformError, match="concurrency_limit_exceeded"), place.waiting():
            pass
    with place.waiting():
        pass


@pytest.mark.parametrize(("rpm", "burst"), [((6_000, 1_000), 1_000), ((0, None), LEAST.burst), ((1, 1), LEAST.burst)])
def test_they_come_at_the_tenants_rpm_but_nobody_is_shut_out(rpm: tuple[int, int | None], burst: int) -> None:
    now = 0
    turnstile, caller = Turnstile(lambda: now), a_caller(rpm=rpm)
    for _ in range(burst):
        turnstile.enter(caller).leave()
    with pytest.raises(PlatformError, match="rate_limit_exceeded") as refused:
        turnstile.enter(caller)
    assert refused.value.retry_after_ms is not None
    turnstile.enter(a_caller("ten_2")).leave()
    now += refused.value.retry_after_ms * 1000
    turnstile.enter(caller).leave()


def test_passing_takes_microseconds() -> None:
    turnstile, caller = Turnstile(), a_caller(rpm=(60_000_000, 1_000_000))
    fastest = float("inf")
    for _ in range(20):
        began = time.thread_time()
        for _ in range(100):
            turnstile.enter(caller).leave()
        fastest = min(fastest, (time.thread_time() - began) / 100)
    assert fastest < 20e-6  # 10 on a machine that does nothing else


def test_a_request_gives_its_place_back_however_it_ends(
    api: TestClient, context: PlatformContext, harbour: Tenant, uploader: Uploader
) -> None:
    for path in (
        "/v1/adapters",
        "/v1/adapters/none",
        "/v1/limits",
        "/v1/keys/self",
        "/v1/models",
        "/v1/usage?format=csv",
    ):
        for _ in range(AT_ONCE + 1):
            assert api.get(path, headers=harbour.auth).status_code in (200, 404)
    assert api.get("/v1/usage?nonsense=1", headers=harbour.auth).status_code == 400
    uploader.whole(b"12345678")
    assert len(context.turnstile) == 0


def test_who_has_all_places_is_refused_and_told_when_to_come_again(
    api: TestClient, harbour: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lorikeet_platform.limits.gating.turnstile.AT_ONCE", 0)
    for path in ("/v1/adapters", "/v1/usage", "/v1/keys/self", "/v1/models"):
        refused = api.get(path, headers=harbour.auth)
        assert refusal(refused)[:2] == (429, "concurrency_limit_exceeded")
        assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("1", "true")
    body = {"model": "none", "messages": [{"role": "user", "content": "one"}]}
    asked = api.post("/v1/chat/completions", json=body, headers=harbour.auth)
    assert asked.status_code == 404  # it has a gate of its own
