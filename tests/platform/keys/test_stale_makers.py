"""A key whose end another gateway has not heard of yet makes, changes and ends nothing; what it made is told (R-11).

The port below takes the caller for what it was a moment ago, as a gateway does for five seconds at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from lorikeet_platform.auth.scopes import SCOPES
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import ApiKey, AuditEvent
from lorikeet_platform.db.tables import Tenant as TenantRow
from tests.support.keys import a_key, keys_may_make_keys
from tests.support.platform_parts import FakeClock, Tenant, limit_key
from tests.support.registry_port import Port, refusal

Write = tuple[str, str, dict[str, object]]
WRITES: list[Write] = [
    ("POST", "/keys", {"name": "made", "scopes": ["inference"]}),
    ("PATCH", "/keys/{other}", {"name": "renamed"}),
    ("POST", "/keys/{other}/rotate", {}),
    ("POST", "/keys/{other}/revoke", {}),
    ("PUT", "/keys/{other}/limits", {"limits": {"rpm": {"value": 1}}}),
]


@pytest.fixture
def other(context: PlatformContext, harbour: Tenant) -> Tenant:
    return a_key(context, harbour, "inference", name="other")


@pytest.fixture
def stale(api: TestClient, context: PlatformContext, harbour: Tenant, other: Tenant) -> Port:
    """A key with all scopes that this gateway has just checked, and of which it hears nothing more."""
    keys_may_make_keys(context, harbour)
    key = a_key(context, harbour, *SCOPES, name="maker")
    port = Port(api, "/v1", key.auth, key.key_id)
    assert port.call("GET", f"/keys/{other.key_id}").status_code == 200
    return port


def change_key(**values: object) -> Callable[[PlatformContext, Port, Tenant], None]:
    def change(context: PlatformContext, port: Port, _tenant: Tenant) -> None:
        with context.db.platform.unit_of_work() as work:
            work.execute(update(ApiKey).where(ApiKey.id == port.actor).values(**values))

    return change


def change_tenant(**values: object) -> Callable[[PlatformContext, Port, Tenant], None]:
    def change(context: PlatformContext, _port: Port, tenant: Tenant) -> None:
        with context.db.platform.unit_of_work() as work:
            work.execute(update(TenantRow).where(TenantRow.id == tenant.id).values(**values))

    return change


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (change_key(status="revoked", revoked_at=2), (401, "invalid_api_key")),
        (change_key(expires_at=2), (401, "invalid_api_key")),
        (change_key(scopes=["inference"]), (403, "insufficient_scope")),
        (change_tenant(status="suspended", suspended_at=2), (403, "tenant_suspended")),
        (change_tenant(keys_make_keys=False), (403, "insufficient_scope")),
    ],
    ids=["revoked", "expired", "narrowed", "suspended", "keys make no keys"],
)
@pytest.mark.parametrize("write", WRITES, ids=lambda write: f"{write[0]} {write[1]}")
def test_n17_a_key_that_is_over_writes_no_key_on_a_gateway_that_does_not_know(
    stale: Port,
    other: Tenant,
    context: PlatformContext,
    harbour: Tenant,
    end: Callable[[PlatformContext, Port, Tenant], None],
    answer: tuple[int, str],
    write: Write,
) -> None:
    end(context, stale, harbour)
    method, path, body = write
    assert refusal(stale.call(method, path.replace("{other}", other.key_id), body))[:2] == answer
    with context.db.platform.read() as work:
        names = set(work.scalars(select(ApiKey.name).where(ApiKey.tenant_id == harbour.id)))
        assert names == {"first", "other", "maker"}
        assert work.get_one(ApiKey, (harbour.id, other.key_id)).status == "active"


def test_a_key_gives_what_it_has_and_not_what_a_gateway_remembers(
    stale: Port, context: PlatformContext, harbour: Tenant
) -> None:
    change_key(ip_allowlist=["192.0.2.0/24"])(context, stale, harbour)
    made = stale.call("POST", "/keys", {"name": "made", "scopes": ["inference"]}).json()
    assert made["ip_allowlist"] == ["192.0.2.0/24"]
    limit_key(context.db, harbour.id, stale.actor, rpm=5)
    assert refusal(stale.call("POST", "/keys", {"name": "more"}))[:2] == (403, "insufficient_scope")


@pytest.mark.parametrize("leaks", [False, True])
def test_whoever_ends_a_key_is_told_what_it_made_and_may_end_that_too(
    owner: Port,
    stale: Port,
    api: TestClient,
    context: PlatformContext,
    admin: TestClient,
    as_admin: dict[str, str],
    clock: FakeClock,
    leaks: bool,
) -> None:
    scopes = ["inference", "keys:write", "keys:read"]
    child = stale.call("POST", "/keys", {"name": "child", "scopes": scopes}).json()
    as_child = dataclasses.replace(stale, auth={"authorization": f"Bearer {child['secret']}"})
    grandchild = as_child.call("POST", "/keys", {"name": "grandchild", "scopes": ["inference"]}).json()
    brief = {"name": "brief", "scopes": ["inference"], "expires_at": clock() // 1_000_000 + 1}
    assert stale.call("POST", "/keys", brief).status_code == 201
    clock.advance(2)
    secret = stale.auth["authorization"].removeprefix("Bearer ")

    def end(**more: object) -> dict[str, object]:
        path, body = f"/admin/v1/tenants/harbour/keys/{stale.actor}/revoke", dict(more)
        if leaks:
            path, body = "/admin/v1/leaked_keys", {"key": secret, **more}
        answer = admin.post(path, json=body, headers=as_admin)
        assert answer.status_code == 200, answer.text
        shown: dict[str, object] = answer.json()
        return {key["id"]: key["status"] for key in shown["made_keys"]}  # type: ignore[attr-defined]

    made = {child["id"], grandchild["id"]}
    assert end() == dict.fromkeys(made, "active")
    assert api.get("/v1/models", headers={"authorization": f"Bearer {grandchild['secret']}"}).status_code == 200
    assert end(with_made=True) == dict.fromkeys(made, "revoked")
    for key in (child, grandchild):
        assert api.get("/v1/models", headers={"authorization": f"Bearer {key['secret']}"}).status_code == 401
    assert end(with_made=True) == {}
    with context.db.platform.read() as work:
        action = "key.leaked" if leaks else "key.revoke"
        ended = work.scalars(select(AuditEvent).where(AuditEvent.action == action))
        assert {event.subject: event.details.get("with") for event in ended} == {
            stale.actor: None,
            **dict.fromkeys(made, stale.actor),
        }
    assert owner.get(f"/keys/{harbour_first(owner)}")["status"] == "active"


def harbour_first(owner: Port) -> str:
    [first] = [key["id"] for key in owner.get("/keys")["data"] if key["name"] == "first"]
    return str(first)


@pytest.mark.parametrize("value", [1, "yes", None])
def test_with_made_is_true_or_false(owner: Port, harbour: Tenant, value: object) -> None:
    refused = owner.call("POST", f"/keys/{harbour.key_id}/revoke", {"with_made": value})
    assert refusal(refused) == (400, "invalid_value", "with_made")
