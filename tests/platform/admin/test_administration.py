"""Tenants, keys and adapters on the administration port."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.app import openapi_of
from lorikeet_platform.auth.key_format import is_well_formed
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Tenant as TenantRow
from tests.support.platform_parts import Tenant, a_version

TENANTS = "/admin/v1/tenants"


@pytest.fixture
def owner(admin: TestClient, as_admin: dict[str, str]) -> TestClient:
    admin.headers.update(as_admin)
    return admin


def test_a_tenant_is_made_and_listed(owner: TestClient, context: PlatformContext) -> None:
    created = owner.post(TENANTS, json={"slug": "harbour", "display_name": "The Harbour"})
    assert created.status_code == 201
    tenant = created.json()
    assert tenant["id"].startswith("ten_")
    assert {name: tenant[name] for name in ("slug", "display_name", "status", "weight", "adapters", "keys")} == {
        "slug": "harbour",
        "display_name": "The Harbour",
        "status": "active",
        "weight": 1.0,
        "adapters": 0,
        "keys": 0,
    }
    assert owner.get(TENANTS).json() == {"object": "list", "data": [tenant]}
    with context.db.platform.read() as work:
        salt = work.scalars(select(TenantRow.cache_salt)).one()
    assert len(salt) == 32
    assert salt.hex() not in created.text


def test_a_slug_is_taken_once(owner: TestClient) -> None:
    owner.post(TENANTS, json={"slug": "harbour"})
    again = owner.post(TENANTS, json={"slug": "harbour"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "name_conflict")
    assert again.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("slug", ["ab", "-ab", "ab-", "A-b", "a_b", "a" * 41, "é-slug", "abc\n"])
def test_a_slug_has_its_shape(owner: TestClient, slug: str) -> None:
    assert owner.post(TENANTS, json={"slug": slug}).json()["error"]["param"] == "slug"


def test_a_tenants_weight_is_positive_and_finite(owner: TestClient) -> None:
    assert owner.post(TENANTS, json={"slug": "harbour", "weight": 3}).json()["weight"] == 3.0
    for weight in (0, -1, 1001, "2", None):
        refused = owner.post(TENANTS, json={"slug": "orchard", "weight": weight})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "weight")


def test_a_keys_secret_is_shown_once(owner: TestClient, api: TestClient) -> None:
    owner.post(TENANTS, json={"slug": "harbour"})
    created = owner.post(f"{TENANTS}/harbour/keys", json={"name": "ci"})
    secret = created.json()["secret"]
    assert created.status_code == 201
    assert is_well_formed(secret)
    assert created.headers["cache-control"] == "no-store"
    listed = owner.get(f"{TENANTS}/harbour/keys")
    assert secret not in listed.text
    [key] = listed.json()["data"]
    assert key == {name: value for name, value in created.json().items() if name != "secret"}
    assert (key["hint"], key["public_id"], key["status"]) == (secret[44:48], secret[3:15], "active")
    assert api.get("/v1/adapters", headers={"authorization": f"Bearer {secret}"}).status_code == 200


def test_a_keys_name_is_free_again_after_its_revocation(owner: TestClient, harbour: Tenant) -> None:
    keys = f"{TENANTS}/{harbour.slug}/keys"
    assert owner.post(keys, json={"name": "first"}).status_code == 409
    revoke = f"{keys}/{harbour.key_id}/revoke"
    revoked = owner.post(revoke, json={"reason": "lost"}).json()
    assert (revoked["status"], revoked["revoke_reason"]) == ("revoked", "lost")
    assert owner.post(revoke, json={"reason": "again"}).json() == revoked
    assert owner.post(keys, json={"name": "first"}).status_code == 201
    assert owner.get(TENANTS).json()["data"][0]["keys"] == 1


def test_what_does_not_exist_is_404(owner: TestClient) -> None:
    for method, path in [("GET", "keys"), ("GET", "adapters"), ("POST", "keys")]:
        body = {"name": "x"} if method == "POST" else None
        assert owner.request(method, f"{TENANTS}/nobody/{path}", json=body).status_code == 404
    assert owner.get(f"{TENANTS}/nobody").status_code == 404
    assert owner.post(f"{TENANTS}/nobody/suspend", json={}).status_code == 404


def test_a_tenants_adapters_are_shown_with_versions_and_aliases(
    owner: TestClient, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate")
        a_version(work, harbour, name="pirate", number=2, state="rejected")
        a_version(work, orchard, name="haiku")
    [adapter] = owner.get(f"{TENANTS}/harbour/adapters").json()["data"]
    assert [(alias["alias"], alias["targets"]) for alias in adapter["aliases"]] == [
        ("live", [{"version": 1, "weight": 100}])
    ]
    assert [(version["number"], version["state"]) for version in adapter["versions"]] == [(2, "rejected"), (1, "ready")]


def test_the_schema_names_every_operation_and_knows_no_422(owner: TestClient, api: TestClient) -> None:
    for client in (owner, api):
        schema = openapi_of(client.app)  # type: ignore[arg-type]
        operations = [operation for path in schema["paths"].values() for operation in path.values()]
        ids = [operation["operationId"] for operation in operations]
        assert len(ids) == len(set(ids))
        assert all(identifier.isidentifier() for identifier in ids)
        assert all("422" not in o["responses"] and "default" in o["responses"] for o in operations)
        assert "HTTPValidationError" not in schema["components"]["schemas"]
