"""A tenant reads its own events, an administrator everybody's; the newest first, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.audit.service import record
from lorikeet_platform.auth.actor import ADMINISTRATOR, SYSTEM
from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import Tenant
from tests.support.registry_port import refusal

ALL = "/admin/v1/audit_events"


@pytest.fixture
def written(context: PlatformContext, harbour: Tenant, orchard: Tenant) -> None:
    """One event of the platform, then three of each tenant, by turns."""
    with context.db.platform.unit_of_work() as work:
        record(work, tenant_id=None, actor=ADMINISTRATOR, action="owner.sign_in", subject="owner", now=5_000_000)
    for number in range(3):
        for tenant, actor in ((harbour, harbour.key_id), (orchard, SYSTEM)):
            with context.db.platform.unit_of_work() as work:
                record(
                    work,
                    tenant_id=tenant.id,
                    actor=actor,
                    action="alias.set",
                    subject=f"{tenant.slug}@{number}",
                    now=6_000_000 + number,
                    details={"revision": number},
                )


def subjects(page: dict[str, Any]) -> list[str]:
    return [entry["subject"] for entry in page["data"] if entry["action"] in ("alias.set", "owner.sign_in")]


@pytest.mark.usefixtures("written")
def test_a_tenant_reads_its_own_events_page_by_page(api: TestClient, harbour: Tenant) -> None:
    first = api.get("/v1/audit_events?limit=2", headers=harbour.auth).json()
    assert (subjects(first), first["has_more"]) == (["harbour@2", "harbour@1"], True)
    rest = api.get("/v1/audit_events", params={"after": first["next"]}, headers=harbour.auth).json()
    assert subjects(rest) == ["harbour@0"]
    assert first["data"][0] == {
        "object": "audit_event",
        "id": first["data"][0]["id"],
        "at": 6,
        "tenant": "harbour",
        "actor_kind": "key",
        "actor": harbour.key_id,
        "request_id": None,
        "action": "alias.set",
        "subject": "harbour@2",
        "details": {"revision": 2},
    }


@pytest.mark.usefixtures("written")
def test_an_administrator_reads_all_events_or_one_tenants(admin: TestClient, as_admin: dict[str, str]) -> None:
    everything = admin.get(ALL, headers=as_admin).json()
    assert subjects(everything)[:2] == ["orchard@2", "harbour@2"]
    [sign_in] = [entry for entry in everything["data"] if entry["action"] == "owner.sign_in"]
    assert (sign_in["tenant"], sign_in["actor"]) == (None, "administrator")
    filtered = admin.get(f"{ALL}?tenant=orchard", headers=as_admin).json()
    of_tenant = admin.get("/admin/v1/tenants/orchard/audit_events", headers=as_admin).json()
    assert filtered == of_tenant
    assert subjects(of_tenant) == ["orchard@2", "orchard@1", "orchard@0"]
    assert admin.get(f"{ALL}?tenant=nobody", headers=as_admin).status_code == 404


@pytest.mark.usefixtures("written")
def test_a_cursor_is_of_the_list_it_was_given_for(
    api: TestClient, admin: TestClient, as_admin: dict[str, str], harbour: Tenant, orchard: Tenant
) -> None:
    mine = api.get("/v1/audit_events?limit=1", headers=harbour.auth).json()["next"]
    for client, path, headers in (
        (api, "/v1/audit_events", orchard.auth),
        (admin, ALL, as_admin),
        (admin, "/admin/v1/tenants/orchard/audit_events", as_admin),
    ):
        answer = client.get(path, params={"after": mine}, headers=headers)
        assert refusal(answer) == (400, "invalid_value", "after")
    assert api.get("/v1/audit_events", params={"after": mine[:-1] + "_"}, headers=harbour.auth).status_code == 400
    same = admin.get("/admin/v1/tenants/harbour/audit_events", params={"after": mine}, headers=as_admin)
    assert subjects(same.json()) == ["harbour@1", "harbour@0"]
