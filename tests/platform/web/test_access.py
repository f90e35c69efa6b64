"""What routes declare, and that keys are asked for it, by the routes of the tenant port (R-15, N-2, N-3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, params
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from lorikeet_platform.app import create_admin_app, create_tenant_app
from lorikeet_platform.auth.scopes import SCOPES, needs, scopes_of
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.web.access import Caller, UndeclaredRoute, check_access_is_declared, public, tenant_key
from tests.support.keys import a_key, keys_may_make_keys
from tests.support.platform_parts import Tenant

OPEN = {"/livez", "/readyz"}  # and the protocol's own description of uploads


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    scopes: frozenset[str]

    @property
    def address(self) -> str:
        return re.sub(r"\{[^}]*\}", "1", self.path)


def routes_for_keys(context: PlatformContext) -> Iterator[Route]:
    for route in iter_route_contexts(list(create_tenant_app(context).routes)):
        for method in sorted(route.methods or ()):
            if route.path not in OPEN and method != "OPTIONS":
                scopes = scopes_of(route.dependant.call)
                assert scopes is not None, route.path
                yield Route(method, str(route.path), frozenset(scopes))


def test_every_route_for_keys_names_scopes_that_exist(context: PlatformContext) -> None:
    routes = list(routes_for_keys(context))
    assert len(routes) > 30
    assert {route.path for route in routes if not route.scopes} == {"/v1/keys/self"}
    assert set().union(*(route.scopes for route in routes)) <= set(SCOPES)


def test_n2_each_route_refuses_a_key_without_its_scope(
    api: TestClient, context: PlatformContext, harbour: Tenant
) -> None:
    keys_may_make_keys(context, harbour)
    for route in routes_for_keys(context):
        if not route.scopes:
            continue
        others = [scope for scope in SCOPES if scope not in route.scopes]
        key = a_key(context, harbour, *others, name=f"{route.method} {route.path}"[:100])
        refused = api.request(route.method, route.address, headers=key.auth)
        assert refused.status_code == 403, (route, refused.text)
        if route.method != "HEAD":
            error = refused.json()["error"]
            assert (error["code"], error["type"]) == ("insufficient_scope", "permission_error")
            assert any(scope in error["message"] for scope in route.scopes)


def test_each_of_a_routes_scopes_is_enough_for_it(api: TestClient, context: PlatformContext, harbour: Tenant) -> None:
    keys_may_make_keys(context, harbour)
    keys = {scope: a_key(context, harbour, scope, name=scope) for scope in SCOPES}
    for route in routes_for_keys(context):
        for scope in route.scopes:
            answer = api.request(route.method, route.address, headers=keys[scope].auth)  # type: ignore[index]
            assert answer.status_code not in (401, 403), (route, scope, answer.text)


def test_n2_strangers_are_refused_before_anything_else_is_looked_at(api: TestClient, context: PlatformContext) -> None:
    for route in routes_for_keys(context):
        refused = api.request(route.method, route.address, content=b"{", headers={"content-type": "application/json"})
        assert refused.status_code == 401, (route, refused.text)
        assert refused.headers["www-authenticate"] == "Bearer"


def test_administrators_need_no_scope_on_the_same_routes(
    admin: TestClient, as_admin: dict[str, str], harbour: Tenant
) -> None:
    for path in ("adapters", "uploads", "keys"):
        assert admin.get(f"/admin/v1/tenants/harbour/{path}", headers=as_admin).status_code == 200


def test_n3_the_two_ports_share_no_route_that_needs_somebody(context: PlatformContext) -> None:
    tenant = {(route.method, route.path) for route in routes_for_keys(context)}
    admin = {
        (method, route.path)
        for route in iter_route_contexts(list(create_admin_app(context).routes))
        for method in route.methods or ()
        if route.path != "/{path:path}"
    }
    assert not tenant & admin


def test_n3_a_route_without_a_declaration_stops_the_start() -> None:
    async def silent(caller: Caller) -> None: ...

    @needs("inference")
    async def open_to_whom() -> None: ...

    @needs("inference")
    async def told(caller: Caller) -> None: ...

    cases: list[tuple[Callable[..., Any], list[params.Depends], bool]] = [
        (told, [], True),
        (silent, [], False),
        (open_to_whom, [], False),
        (open_to_whom, [Depends(public)], True),
        (silent, [Depends(public)], False),
        (open_to_whom, [Depends(tenant_key)], True),
    ]
    for handler, dependencies, is_declared in cases:
        app, router = FastAPI(openapi_url=None), APIRouter()
        router.add_api_route("/x", handler, dependencies=dependencies)
        app.include_router(router)
        if is_declared:
            check_access_is_declared(app.routes)
        else:
            with pytest.raises(UndeclaredRoute, match="/x"):
                check_access_is_declared(app.routes)


def test_sealing_with_an_alias_needs_the_scope_that_moves_aliases(
    api: TestClient, context: PlatformContext, harbour: Tenant
) -> None:
    key = a_key(context, harbour, "adapters:write", "adapters:read")
    body = {"files": {"adapter_config.json": "upl_x", "adapter_model.safetensors": "upl_y"}}
    with_alias = api.post("/v1/adapters/pirate/versions", json={**body, "alias": "live"}, headers=key.auth)
    assert (with_alias.status_code, with_alias.json()["error"]["code"]) == (403, "insufficient_scope")
    without = api.post("/v1/adapters/pirate/versions", json=body, headers=key.auth)
    assert without.json()["error"]["code"] != "insufficient_scope"
