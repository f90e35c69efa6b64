"""N-1 and N-2: every route of the live route table, with another tenant's ids and with keys that must not pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import pytest

from lorikeet_platform.auth.scopes import SCOPES, Scope
from tests.support.platform_parts import Tenant
from tests.support.route_table import Route, live_routes
from tests.support.stack_place import Place
from tests.support.tenant_things import PARAMETER, Things, dump, nobodys, request_of, things_of

KEYED = [route for route in live_routes() if route.takes_key]
ADMINISTRATORS = [route for route in live_routes() if not route.takes_key and not route.is_public]
WITH_IDS = [route for route in KEYED if PARAMETER.search(route.path) or route.path.endswith("completions")]
UNDER_A_TENANT = [
    route for route in ADMINISTRATORS if "{slug}" in route.path and len(PARAMETER.findall(route.path)) > 1
]


@pytest.fixture(scope="module")
def ours(installation: Place) -> Tenant:
    return installation.tenant()


@pytest.fixture(scope="module")
def theirs(installation: Place) -> Tenant:
    return installation.tenant()


@pytest.fixture(scope="module")
def things(installation: Place, theirs: Tenant) -> Things:
    return things_of(installation, theirs, "quayside")


@pytest.fixture(scope="module")
def own_things(installation: Place, ours: Tenant) -> Things:
    return things_of(installation, ours, "harbour")


@pytest.fixture(scope="module")
def client(installation: Place) -> Iterator[httpx.Client]:
    with installation.client() as client:
        yield client


def answer_to(client: httpx.Client, request: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    return client.request(**{**request, "headers": {**request.get("headers", {}), **headers}})


def told(answer: httpx.Response, asked: Things, told_of: Things) -> tuple[int, str]:
    """Status and body, without what differs by design: the request's id, and the names that were asked for."""
    text = answer.text
    if answer.content and answer.headers["content-type"] == "application/json":
        text = text.replace(answer.json().get("request_id", ""), "")
    for name in ("slug", "name", "upload_id", "key_id"):
        text = text.replace(asked.value(name), told_of.value(name))
    return answer.status_code, text


@pytest.mark.parametrize("route", WITH_IDS, ids=str)
def test_n_1_another_tenants_thing_is_answered_exactly_like_nobodys(
    installation: Place, client: httpx.Client, ours: Tenant, things: Things, route: Route
) -> None:
    before, none = dump(installation.db), nobodys(things)
    of_theirs, of_nobodys = (answer_to(client, request_of(route, asked), ours.auth) for asked in (things, none))
    assert told(of_theirs, things, none) == told(of_nobodys, none, none)
    assert of_theirs.status_code == 404, of_theirs.text
    assert of_theirs.headers.keys() == of_nobodys.headers.keys()
    assert dump(installation.db) == before


@pytest.mark.parametrize("route", UNDER_A_TENANT, ids=str)
def test_n_1_a_thing_is_not_found_under_another_tenants_address_either(
    installation: Place, ours: Tenant, things: Things, route: Route
) -> None:
    before, none = dump(installation.db), nobodys(things)
    misplaced = Things(ours.slug, things.name, things.upload_id, things.key_id)
    missing = Things(ours.slug, none.name, none.upload_id, none.key_id)
    of_theirs, of_nobodys = (
        answer_to(installation.admin, request_of(route, asked), {}) for asked in (misplaced, missing)
    )
    assert told(of_theirs, misplaced, missing) == told(of_nobodys, missing, missing)
    assert of_theirs.status_code == 404, of_theirs.text
    assert dump(installation.db) == before


@pytest.mark.parametrize("route", [route for route in KEYED if route.method == "GET"], ids=str)
def test_n_1_no_list_shows_anything_of_another_tenant(
    client: httpx.Client, ours: Tenant, theirs: Tenant, things: Things, route: Route
) -> None:
    answer = answer_to(client, request_of(route, things), ours.auth)
    shown = answer.text.replace(things.path(route), "")
    for word in things.words - {things.value(name) for name in PARAMETER.findall(route.path)}:
        assert word not in shown
    assert theirs.id not in shown


@dataclass(frozen=True)
class Refused:
    """A tenant whose things are there and whose key must not reach them, with the answer that it gets."""

    things: Things
    headers: dict[str, str]
    status: int
    code: str


def no_key(_place: Place, tenant: Tenant, things: Things) -> Refused:
    return Refused(things, {}, 401, "missing_api_key")


def revoked(place: Place, tenant: Tenant, things: Things) -> Refused:
    place.ask_admin("POST", f"/admin/v1/tenants/{tenant.slug}/keys/{tenant.key_id}/revoke", json={})
    return Refused(things, tenant.auth, 401, "invalid_api_key")


def expired(place: Place, tenant: Tenant, things: Things) -> Refused:
    place.ask_admin(
        "PATCH", f"/admin/v1/tenants/{tenant.slug}/keys/{tenant.key_id}", json={"expires_at": int(time.time()) + 1}
    )
    time.sleep(1.1)
    return Refused(things, tenant.auth, 401, "invalid_api_key")


def suspended(place: Place, tenant: Tenant, things: Things) -> Refused:
    place.ask_admin("POST", f"/admin/v1/tenants/{tenant.slug}/suspend", json={})
    return Refused(things, tenant.auth, 403, "tenant_suspended")


CASES = (no_key, revoked, expired, suspended)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.__name__)
def refused(installation: Place, request: pytest.FixtureRequest) -> Refused:
    tenant = installation.tenant()
    things = things_of(installation, tenant, "quayside")
    made: Refused = request.param(installation, tenant, things)
    return made


@pytest.mark.parametrize("route", KEYED, ids=str)
def test_n_2_a_key_that_is_none_any_more_reaches_nothing_and_changes_nothing(
    installation: Place, client: httpx.Client, refused: Refused, route: Route
) -> None:
    before = dump(installation.db)
    answer = answer_to(client, request_of(route, refused.things), refused.headers)
    assert answer.status_code == refused.status, answer.text
    if route.method != "HEAD":
        assert answer.json()["error"]["code"] == refused.code
    assert dump(installation.db) == before


@pytest.fixture(scope="module")
def keys_without(installation: Place, ours: Tenant) -> Callable[[frozenset[Scope]], dict[str, str]]:
    """A header with a key that may do everything but what the scopes say."""

    @cache
    def key(scopes: frozenset[Scope]) -> dict[str, str]:
        made = installation.key(ours.slug, scopes=[scope for scope in SCOPES if scope not in scopes])
        return {"authorization": f"Bearer {made['secret']}"}

    return key


@pytest.mark.parametrize("route", [route for route in KEYED if route.scopes], ids=str)
def test_n_2_a_key_without_the_scope_of_the_route_is_refused_and_changes_nothing(
    installation: Place,
    client: httpx.Client,
    ours: Tenant,
    own_things: Things,
    keys_without: Callable[[frozenset[Scope]], dict[str, str]],
    route: Route,
) -> None:
    headers = keys_without(route.scopes)
    before = dump(installation.db)
    answer = answer_to(client, request_of(route, own_things), headers)
    assert answer.status_code == 403, answer.text
    if route.method != "HEAD":
        assert answer.json()["error"]["code"] == "insufficient_scope"
    assert dump(installation.db) == before


@pytest.mark.parametrize("route", ADMINISTRATORS, ids=str)
def test_n_2_no_tenants_key_and_no_stranger_reaches_an_administrators_route(
    installation: Place, ours: Tenant, own_things: Things, route: Route
) -> None:
    before, request = dump(installation.db), request_of(route, own_things)
    wrong = {"authorization": f"Bearer {installation.admin.headers['authorization'][7:-1]}"}
    with httpx.Client(base_url=installation.admins[0], trust_env=False) as stranger:
        for headers in ({}, ours.auth, wrong):
            assert answer_to(stranger, request, headers).status_code == 401
    assert dump(installation.db) == before


def test_n_3_every_route_says_whom_it_is_for_and_is_on_one_port() -> None:
    both = {"/livez", "/readyz"}
    on = {port: {str(route) for route in live_routes() if route.port == port} for port in ("tenant", "admin")}
    assert {name.split()[1] for name in on["tenant"] & on["admin"]} == both
    assert all(route.is_public + route.takes_key <= 1 for route in live_routes())
    to_strangers = {str(route) for route in live_routes() if route.port == "tenant" and route.is_public}
    assert to_strangers == {"GET /livez", "GET /readyz", "OPTIONS /v1/uploads"}
    assert not any(route.takes_key for route in live_routes() if route.port == "admin")
