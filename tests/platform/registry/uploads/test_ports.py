"""The same protocol on both ports, and the list with which another machine goes on."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_adapters.files import CONFIG_FILE, INDEX_FILE
from lorikeet_platform.accounts.owner_token import issue_owner_token
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.settings import MIB
from tests.support.platform_parts import SLICE, TUS, FakeClock, Tenant, Uploader, a_tenant, encode_metadata
from tests.support.upload_answers import stored

CONTENT = bytes(range(256)) * 16
SHARDS = ["adapter_model-00001-of-00002.safetensors", "adapter_model-00002-of-00002.safetensors"]


def listed(client: TestClient, address: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    response = client.get(address, headers=headers)
    assert response.status_code == 200, response.text
    uploads: list[dict[str, Any]] = response.json()["data"]
    return uploads


def announced(content: bytes, adapter: str = "pirate") -> dict[str, str]:
    metadata = {
        "adapter": adapter,
        "filename": CONFIG_FILE,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return {**TUS, "upload-length": str(len(content)), "upload-metadata": encode_metadata(metadata)}


def test_open_uploads_are_listed_with_where_they_stand(uploader: Uploader, clock: FakeClock) -> None:
    location = uploader.create(CONTENT).headers["location"]
    uploader.append(location, 0, CONTENT[:100])
    uploader.create(b"other", adapter="haiku")
    (upload,) = listed(uploader.client, "/v1/uploads?adapter=pirate", uploader.tenant.auth)
    assert upload == {
        "id": location.rpartition("/")[2],
        "adapter": "pirate",
        "filename": "adapter_model.safetensors",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "length": len(CONTENT),
        "received": 100,
        "expires_at": (clock.now + 24 * 3600 * 1_000_000) // 1_000_000,
    }
    assert len(listed(uploader.client, "/v1/uploads", uploader.tenant.auth)) == 2
    assert listed(uploader.client, "/v1/uploads?adapter=none", uploader.tenant.auth) == []


def test_what_is_over_or_anothers_is_not_listed(
    context: PlatformContext, uploader: Uploader, orchard: Tenant, clock: FakeClock
) -> None:
    ended = uploader.create(CONTENT).headers["location"]
    uploader.client.delete(ended, headers={**uploader.tenant.auth, **TUS})
    uploader.create(CONTENT)
    assert len(listed(uploader.client, "/v1/uploads", uploader.tenant.auth)) == 1
    assert listed(uploader.client, "/v1/uploads", orchard.auth) == []
    clock.advance(25 * 3600)
    assert listed(uploader.client, "/v1/uploads", uploader.tenant.auth) == []


def test_shards_and_their_index_are_files_too(context: PlatformContext, uploader: Uploader) -> None:
    for name in [*SHARDS, INDEX_FILE]:
        created = uploader.create(CONTENT, filename=name)
        assert created.status_code == 201, created.text
        assert uploader.append(created.headers["location"], 0, CONTENT).status_code == 204
        assert stored(context, uploader.tenant, created.headers["location"]) == CONTENT


@pytest.mark.parametrize("name", ["adapter_model-1-of-2.safetensors", "adapter_model.bin", "x"])
def test_other_names_are_refused(uploader: Uploader, name: str) -> None:
    assert uploader.create(CONTENT, filename=name).status_code == 400


def test_an_administrator_uploads_in_a_tenants_stead(
    context: PlatformContext, admin: TestClient, as_admin: dict[str, str], harbour: Tenant, api: TestClient
) -> None:
    place = "/admin/v1/tenants/harbour/uploads"
    content = bytes(3 * MIB)  # more than a JSON body may have
    assert admin.options(place).headers["tus-version"] == "1.0.0"
    created = admin.post(place, headers={**as_admin, **announced(content)})
    location = created.headers["location"]
    assert location.startswith(f"{place}/upl_")
    sent = admin.patch(location, content=content, headers={**as_admin, **TUS, **SLICE, "upload-offset": "0"})
    assert sent.status_code == 204, sent.text
    assert admin.head(location, headers={**as_admin, **TUS}).headers["upload-offset"] == str(len(content))
    assert stored(context, harbour, location) == content
    (upload,) = listed(admin, f"{place}?adapter=pirate", as_admin)
    assert listed(api, "/v1/uploads", harbour.auth) == [upload], "the tenant sees it too"
    assert admin.delete(location, headers={**as_admin, **TUS}).status_code == 204


def test_the_admin_port_wants_an_administrator_and_a_tenant_that_exists(
    admin: TestClient, as_admin: dict[str, str], harbour: Tenant
) -> None:
    headers = announced(CONTENT)
    assert admin.post("/admin/v1/tenants/harbour/uploads", headers=headers).status_code == 401
    assert admin.post("/admin/v1/tenants/harbour/uploads", headers={**headers, **harbour.auth}).status_code == 401
    assert admin.post("/admin/v1/tenants/nobody/uploads", headers={**headers, **as_admin}).status_code == 404
    assert admin.get("/v1/uploads", headers=harbour.auth).status_code == 404


def test_an_upload_lies_under_its_own_tenant_only(
    context: PlatformContext, admin: TestClient, as_admin: dict[str, str], uploader: Uploader
) -> None:
    a_tenant(context, "orchard")
    upload_id = uploader.create(CONTENT).headers["location"].rpartition("/")[2]
    headers = {**as_admin, **TUS}
    assert admin.head(f"/admin/v1/tenants/harbour/uploads/{upload_id}", headers=headers).status_code == 200
    assert admin.head(f"/admin/v1/tenants/orchard/uploads/{upload_id}", headers=headers).status_code == 404
    assert admin.delete(f"/admin/v1/tenants/orchard/uploads/{upload_id}", headers=headers).status_code == 404


def test_a_large_body_elsewhere_on_the_admin_port_is_still_refused(
    admin: TestClient, as_admin: dict[str, str], harbour: Tenant
) -> None:
    for address in ("/admin/v1/tenants/harbour", "/admin/v1/tenants/harbour/uploads", "/uploads/x"):
        response = admin.patch(address, content=bytes(3 * MIB), headers=as_admin)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large"), harbour.slug


def test_a_session_of_the_dashboard_uploads_with_its_csrf_token(
    context: PlatformContext, admin: TestClient, harbour: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        token = issue_owner_token(work, context.clock())
    csrf = {"x-csrf-token": admin.post("/auth/bootstrap", json={"token": token}).json()["csrf_token"]}
    place = f"/admin/v1/tenants/{harbour.slug}/uploads"
    assert admin.post(place, headers=announced(CONTENT)).status_code == 403
    location = admin.post(place, headers={**announced(CONTENT), **csrf}).headers["location"]
    slice_headers = {**TUS, **SLICE, "upload-offset": "0"}
    assert admin.patch(location, content=CONTENT, headers=slice_headers).status_code == 403
    assert admin.patch(location, content=CONTENT, headers={**slice_headers, **csrf}).status_code == 204
    assert admin.head(location, headers=TUS).headers["upload-offset"] == str(len(CONTENT))
