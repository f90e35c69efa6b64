"""Sign-in by the one-time owner link, sessions, CSRF, and the machine's own token."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.accounts.owner_token import issue_owner_token, redeem_owner_token
from lorikeet_platform.accounts.sessions import end_session, start_session
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AuditEvent, OwnerToken, Session
from lorikeet_platform.errors import PlatformError
from tests.support.platform_parts import FakeClock

TENANTS = "/admin/v1/tenants"


def owner_token(context: PlatformContext) -> str:
    with context.db.platform.unit_of_work() as work:
        return issue_owner_token(work, context.clock())


@pytest.fixture
def csrf(admin: TestClient, context: PlatformContext) -> dict[str, str]:
    """Signs `admin` in; returns the header that unsafe methods need."""
    response = admin.post("/auth/bootstrap", json={"token": owner_token(context)})
    assert response.status_code == 200, response.text
    return {"x-csrf-token": response.json()["csrf_token"]}


def refusal(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_the_owners_link_signs_in_once(admin: TestClient, context: PlatformContext) -> None:
    token = owner_token(context)
    assert refusal(admin.get("/auth/session")) == (401, "not_signed_in")
    signed_in = admin.post("/auth/bootstrap", json={"token": token})
    assert signed_in.json()["role"] == "owner"
    assert admin.get("/auth/session").json() == signed_in.json()
    assert admin.get(TENANTS).status_code == 200
    assert refusal(admin.post("/auth/bootstrap", json={"token": token})) == (401, "invalid_owner_token")


def test_the_cookie_is_for_this_site_and_not_for_scripts(admin: TestClient, context: PlatformContext) -> None:
    cookie = admin.post("/auth/bootstrap", json={"token": owner_token(context)}).headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/", "max-age=43200"))
    assert "domain" not in cookie


def test_the_owners_link_ends_after_an_hour_and_with_the_next_link(
    admin: TestClient, context: PlatformContext, clock: FakeClock
) -> None:
    first, second = owner_token(context), owner_token(context)
    assert refusal(admin.post("/auth/bootstrap", json={"token": first})) == (401, "invalid_owner_token")
    clock.advance(3601)
    assert refusal(admin.post("/auth/bootstrap", json={"token": second})) == (401, "invalid_owner_token")


def test_of_many_that_use_one_link_at_once_one_signs_in(context: PlatformContext) -> None:
    token = owner_token(context)
    outcomes: list[bool] = []

    def redeem() -> None:
        try:
            with context.db.platform.unit_of_work() as work:
                redeem_owner_token(work, token, context.clock())
            outcomes.append(True)
        except PlatformError:
            outcomes.append(False)

    threads = [threading.Thread(target=redeem) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 4 + [True]


@pytest.mark.usefixtures("csrf")
def test_only_hashes_of_secrets_are_stored(admin: TestClient, context: PlatformContext) -> None:
    cookie = admin.cookies["lorikeet_session"].encode()
    with context.db.platform.read() as work:
        stored = [work.scalars(select(Session.id_hash)).one(), work.scalars(select(OwnerToken.token_hash)).one()]
    assert [len(item) for item in stored] == [32, 32]
    assert cookie not in stored


def test_an_unsafe_method_needs_the_csrf_token(admin: TestClient, csrf: dict[str, str]) -> None:
    body = {"slug": "harbour"}
    assert refusal(admin.post(TENANTS, json=body)) == (403, "csrf_failed")
    assert refusal(admin.post(TENANTS, json=body, headers={"x-csrf-token": "x"})) == (403, "csrf_failed")
    assert refusal(admin.post("/auth/logout")) == (403, "csrf_failed")
    assert admin.post(TENANTS, json=body, headers=csrf).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://elsewhere.example"},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "null"},
        {"origin": "http://["},
    ],
)
def test_another_sites_page_cannot_act_even_with_the_token(
    admin: TestClient, csrf: dict[str, str], context: PlatformContext, headers: dict[str, str]
) -> None:
    assert refusal(admin.post(TENANTS, json={"slug": "harbour"}, headers=csrf | headers)) == (403, "csrf_failed")
    login = admin.post("/auth/bootstrap", json={"token": owner_token(context)}, headers=headers)
    assert refusal(login) == (403, "csrf_failed")


def test_our_own_page_can_act(admin: TestClient, csrf: dict[str, str]) -> None:
    headers = csrf | {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8001"}
    assert admin.post(TENANTS, json={"slug": "harbour"}, headers=headers).status_code == 201


def test_a_session_ends_at_sign_out(admin: TestClient, csrf: dict[str, str]) -> None:
    cookie = admin.cookies["lorikeet_session"]
    assert admin.post("/auth/logout", headers=csrf).status_code == 204
    admin.cookies.set("lorikeet_session", cookie)
    assert refusal(admin.get(TENANTS)) == (401, "not_signed_in")


def test_a_session_ends_after_thirty_idle_minutes_and_after_twelve_hours(
    admin: TestClient, context: PlatformContext, clock: FakeClock
) -> None:
    admin.post("/auth/bootstrap", json={"token": owner_token(context)})
    for _ in range(24 * 2 - 1):  # every 15 minutes for just under twelve hours
        clock.advance(15 * 60)
        assert admin.get("/auth/session").status_code == 200
    clock.advance(15 * 60 + 1)
    assert admin.get("/auth/session").status_code == 401
    admin.post("/auth/bootstrap", json={"token": owner_token(context)})
    clock.advance(30 * 60 + 1)
    assert admin.get("/auth/session").status_code == 401


def test_the_machines_token_needs_no_csrf_and_nothing_else_is_it(
    admin: TestClient, as_admin: dict[str, str], context: PlatformContext
) -> None:
    assert admin.post(TENANTS, json={"slug": "harbour"}, headers=as_admin).status_code == 201
    for sent in ("", "x", context.admin_token[:-1], context.admin_token + "x"):
        assert refusal(admin.get(TENANTS, headers={"authorization": f"Bearer {sent}"})) == (401, "not_signed_in")
    twice = [*as_admin.items(), *as_admin.items()]
    assert refusal(admin.get(TENANTS, headers=twice)) == (401, "not_signed_in")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", TENANTS),
        ("POST", TENANTS),
        ("GET", f"{TENANTS}/harbour/keys"),
        ("POST", f"{TENANTS}/harbour/keys"),
        ("POST", f"{TENANTS}/harbour/keys/key_x/revoke"),
        ("POST", f"{TENANTS}/harbour/suspend"),
        ("POST", "/admin/v1/leaked_keys"),
        ("GET", f"{TENANTS}/harbour/adapters"),
        ("GET", "/admin/v1/overview"),
        ("POST", "/auth/logout"),
    ],
)
def test_nothing_is_open_to_strangers(admin: TestClient, method: str, path: str) -> None:
    body = {"slug": "harbour", "name": "x"} if method == "POST" else None
    for headers in ({}, {"authorization": "Bearer lka_guess"}, {"cookie": "lorikeet_session=guess"}):
        assert refusal(admin.request(method, path, headers=headers, json=body)) == (401, "not_signed_in")


def test_v18_a_link_is_written_down_and_a_session_ends_once(context: PlatformContext, clock: FakeClock) -> None:
    token = owner_token(context)
    with context.db.platform.unit_of_work() as work:
        redeem_owner_token(work, token, clock())
        _cookie, signed_in = start_session(work, clock())
    with context.db.platform.unit_of_work() as work:
        assert end_session(work, signed_in.id_hash, clock())
        assert not end_session(work, signed_in.id_hash, clock())
    with context.db.platform.read() as work:
        events = [(event.action, event.actor) for event in work.query(AuditEvent)]
    assert events == [("owner.link", "system")]
