"""Tenants on the administration port: plan, weight, suspension, and what they hold in the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AuditEvent, Plan
from tests.support.engine_figures import engine_stats
from tests.support.platform_parts import MeasuredEngine, Tenant
from tests.support.registry_port import refusal

TENANTS = "/admin/v1/tenants"
HARBOUR = f"{TENANTS}/harbour"


@pytest.fixture
def owner(admin: TestClient, as_admin: dict[str, str]) -> TestClient:
    admin.headers.update(as_admin)
    return admin


@pytest.fixture
def gold(context: PlatformContext) -> str:
    with context.db.platform.unit_of_work() as work:
        work.add(Plan(id="gold", display_name="Gold", created_at=1))
    return "gold"


def events(context: PlatformContext) -> list[tuple[str, dict[str, Any]]]:
    with context.db.platform.read() as work:
        rows = work.scalars(select(AuditEvent).where(AuditEvent.action.startswith("tenant.")).order_by(AuditEvent.id))
        return [(row.action, row.details) for row in rows]


def test_a_tenant_is_made_with_its_plan(owner: TestClient, gold: str) -> None:
    made = owner.post(TENANTS, json={"slug": "harbour", "plan": gold, "keys_make_keys": True})
    assert (made.status_code, made.json()["plan"], made.json()["keys_make_keys"]) == (201, "gold", True)
    assert owner.post(TENANTS, json={"slug": "orchard"}).json()["plan"] == "standard"
    refused = owner.post(TENANTS, json={"slug": "meadow", "plan": "golden"})
    assert refusal(refused) == (400, "invalid_value", "plan")


def test_a_tenant_is_changed_where_the_body_says_so(
    owner: TestClient, context: PlatformContext, harbour: Tenant, gold: str
) -> None:
    before = owner.get(HARBOUR).json()
    for change in ({"weight": 3.0}, {"display_name": "The Harbour"}, {"plan": gold}, {"keys_make_keys": True}):
        changed = owner.patch(HARBOUR, json=change)
        assert changed.status_code == 200
        before |= change
        assert owner.get(HARBOUR).json() == before
    assert owner.patch(HARBOUR, json={}).status_code == 200
    assert [details for action, details in events(context) if action == "tenant.update"] == [
        {"weight": 3.0},
        {"display_name": "The Harbour"},
        {"plan": "gold"},
        {"keys_make_keys": True},
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"weight": 0}, "invalid_value"),
        ({"weight": None}, "invalid_value"),
        ({"weight": "2"}, "invalid_value"),
        ({"display_name": ""}, "invalid_value"),
        ({"display_name": None}, "invalid_value"),
        ({"plan": "no-such-plan"}, "invalid_value"),
        ({"plan": ""}, "invalid_value"),
        ({"keys_make_keys": 1}, "invalid_value"),
        ({"slug": "another"}, "unknown_parameter"),
        ({"status": "suspended"}, "unknown_parameter"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_its_name(
    owner: TestClient, harbour: Tenant, body: dict[str, object], code: str
) -> None:
    before = owner.get(HARBOUR).json()
    assert refusal(owner.patch(HARBOUR, json=body)) == (400, code, next(iter(body)))
    assert owner.get(HARBOUR).json() == before


def test_n2_a_suspended_tenant_is_refused_until_it_is_resumed(
    owner: TestClient, api: TestClient, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    def asks(tenant: Tenant) -> int:
        return api.get("/v1/models", headers=tenant.auth).status_code

    assert asks(harbour) == 200
    suspended = owner.post(f"{HARBOUR}/suspend", json={"reason": "has not paid"}).json()
    assert suspended["status"] == "suspended"
    assert suspended["suspended_at"] is not None
    refused = api.get("/v1/models", headers=harbour.auth)
    assert refusal(refused)[:2] == (403, "tenant_suspended")
    assert asks(orchard) == 200
    assert owner.post(f"{HARBOUR}/suspend", json={}).json() == suspended
    resumed = owner.post(f"{HARBOUR}/resume").json()
    assert (resumed["status"], resumed["suspended_at"]) == ("active", None)
    assert asks(harbour) == 200
    assert owner.post(f"{HARBOUR}/resume", json={}).json() == resumed
    assert [event for event in events(context) if event[0] != "tenant.create"] == [
        ("tenant.suspend", {"reason": "has not paid"}),
        ("tenant.resume", {}),
    ]


def test_a_tenant_shows_what_it_holds_of_the_engines_memory(
    owner: TestClient, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    engine, stats = cast(MeasuredEngine, context.engine_client), engine_stats()
    engine.figures = {
        "arena": replace(stats.arena, by_tenant={harbour.id: 4096}),
        "kv": replace(stats.kv, by_tenant={harbour.id: 1024, orchard.id: 1}),
    }
    assert owner.get(HARBOUR).json()["memory"] == {"adapter_bytes": 4096, "kv_bytes": 1024}
    assert owner.get(f"{TENANTS}/orchard").json()["memory"] == {"adapter_bytes": 0, "kv_bytes": 1}
    engine.is_up = False
    assert owner.get(HARBOUR).json()["memory"] is None


def test_a_tenant_that_does_not_exist_is_404(owner: TestClient) -> None:
    nobody = f"{TENANTS}/nobody"
    assert owner.get(nobody).status_code == 404
    assert owner.patch(nobody, json={"weight": 2.0}).status_code == 404
    for action in ("suspend", "resume"):
        assert refusal(owner.post(f"{nobody}/{action}", json={})) == (404, "not_found", "slug")


@pytest.mark.parametrize("slug", ["..", "%2e%2e", "../harbour", "harbour%00", "HARBOUR", "harbour ", "%252e%252e"])
def test_n13_a_slug_that_is_a_path_names_no_tenant(owner: TestClient, harbour: Tenant, slug: str) -> None:
    for action in ("", "/keys", "/limits"):
        assert owner.get(f"{TENANTS}/{slug}{action}").status_code in (400, 404)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b]0;x\x07", "\u202eabc", "a\u200bb", "\u2028"])
def test_a_tenant_has_a_name_that_can_be_read(owner: TestClient, harbour: Tenant, name: str) -> None:
    made = owner.post(TENANTS, json={"slug": "orchard", "display_name": name})
    changed = owner.patch(HARBOUR, json={"display_name": name})
    assert refusal(made) == refusal(changed) == (400, "invalid_value", "display_name")
    assert owner.patch(HARBOUR, json={"display_name": "Hafen – Größe 3 (日本)"}).status_code == 200
