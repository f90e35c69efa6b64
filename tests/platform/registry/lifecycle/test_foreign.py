"""N-1, N-4, N-5: another tenant's adapters, versions, files, aliases and uploads are missing like what never was.

The routes are taken from the running applications, so that one that is added later is tried as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Table, VersionFile
from tests.support.platform_parts import CONFIG, SLICE, TUS, WEIGHTS, Tenant, Uploader, a_version
from tests.support.registry_port import Port

SLUG = "/admin/v1/tenants/{slug}"
ROOTS = {"tenant": "/v1", "admin": SLUG}
BODIES: Mapping[str, Any] = {
    "set_alias": {"targets": [{"version": 1, "weight": 100}]},
    "roll_back_alias": {},
    "retire_version": {},
    "quarantine_version": {},
}
# They take no id of anything that is somebody's.
WITHOUT_IDS = {"list_adapters", "list_uploads", "create_upload", "describe_uploads"}


@dataclass(frozen=True)
class Theirs:
    """What the other tenant has, by the names of the path's parts."""

    upload_id: str
    sealed: Mapping[str, str]
    name: str = "haiku"
    number: str = "1"
    alias: str = "live"
    filename: str = CONFIG


@pytest.fixture
def theirs(context: PlatformContext, api: TestClient, orchard: Tenant) -> Theirs:
    """orchard's adapter `haiku`: a ready version with files and an alias, one being validated, and an open upload."""
    uploader = Uploader(api, orchard)
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, orchard, name="haiku")
    uploads = {
        CONFIG: uploader.whole(b"{}", filename=CONFIG, adapter="haiku"),
        WEIGHTS: uploader.whole(b"w", adapter="haiku"),
    }
    with context.db.platform.unit_of_work() as work:
        work.add(
            VersionFile(
                tenant_id=orchard.id,
                version_id=version.id,
                filename=CONFIG,
                sha256="a" * 64,
                bytes=2,
                upload_id=uploads[CONFIG],
            )
        )
    location = uploader.create(b"open", adapter="haiku").headers["location"]
    return Theirs(location.rpartition("/")[2], uploads)


def routes(client: TestClient, root: str) -> Iterator[tuple[str, str, str]]:
    """(operation, method, path) of every route of adapters and uploads."""
    for route in iter_route_contexts(client.app.routes):  # type: ignore[attr-defined]
        path = str(getattr(route, "path", ""))
        if path.startswith((f"{root}/adapters", f"{root}/uploads")):
            for method in sorted(getattr(route, "methods", None) or ()):
                yield str(route.operation_id), method, path.removeprefix(root)


def call(port: Port, operation: str, method: str, path: str, ids: Theirs) -> httpx2.Response:
    parts = {"name": ids.name, "number": ids.number, "alias": ids.alias, "filename": ids.filename}
    address = port.prefix + path.format(**parts, upload_id=ids.upload_id)
    headers = {**port.auth}
    if "/uploads" in path:
        headers |= TUS
    if method == "PATCH":
        return port.client.patch(address, content=b"x", headers={**headers, **SLICE, "upload-offset": "0"})
    body = {"files": dict(ids.sealed)} if operation == "create_version" else BODIES.get(operation)
    return port.client.request(method, address, json=body, headers=headers)


def told(response: httpx2.Response, ids: Theirs) -> object:
    """What the answer says, with the ids that were asked for taken out."""
    if not response.content:
        return response.status_code
    error = response.json()["error"]
    message = error["message"]
    for asked in (*ids.sealed.values(), ids.upload_id, ids.name):
        message = message.replace(asked, "ASKED")
    return response.status_code, error["code"], error["param"], message


def dump(context: PlatformContext, tenant: Tenant) -> dict[str, list[tuple[object, ...]]]:
    with context.db.platform.read() as work:
        return {
            table.name: [tuple(row) for row in work.execute(select(table).where(table.c.tenant_id == tenant.id))]
            for table in Table.metadata.sorted_tables
            if "tenant_id" in table.c and table.name != "api_keys"
        }


@pytest.mark.parametrize("where", ROOTS)
def test_n_1_and_n_4_every_route_answers_for_anothers_as_for_nobodys_and_changes_nothing(
    context: PlatformContext,
    api: TestClient,
    admin: TestClient,
    harbour: Tenant,
    orchard: Tenant,
    as_admin: dict[str, str],
    theirs: Theirs,
    where: str,
) -> None:
    clients = {
        "tenant": Port(api, "/v1", harbour.auth, ""),
        "admin": Port(admin, SLUG.format(slug="harbour"), as_admin, ""),
    }
    port, missing = clients[where], "upl_" + "0" * 26
    nobodys = Theirs(missing, dict.fromkeys(theirs.sealed, missing), name="nobody")
    before, stored = dump(context, orchard), list(context.store.entries(""))
    tried = set()
    for operation, method, path in routes(port.client, ROOTS[where]):
        if operation in WITHOUT_IDS:
            continue
        tried.add(operation)
        of_them, of_nobody = (call(port, operation, method, path, ids) for ids in (theirs, nobodys))
        assert of_them.status_code == 404, (operation, of_them.text)
        assert told(of_them, theirs) == told(of_nobody, nobodys), operation
    assert {"get_version", "download_file", "set_alias", "append_to_upload", "create_version"} <= tried
    assert ("quarantine_version" in tried) == (where == "admin")
    assert (dump(context, orchard), list(context.store.entries(""))) == (before, stored)
    assert port.get("/adapters")["data"] == []
    assert port.call("GET", "/uploads").json()["data"] == []


def test_n_5_an_alias_cannot_be_pointed_at_anothers_version(
    port: Port, pirate: list[str], theirs: Theirs, context: PlatformContext, orchard: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, orchard, name="pirate", number=9)
    for number in (9, 10):
        refused = port.put_alias("live", number)
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == f"There is no version {number} of this adapter."
    by_id = port.call("PUT", "/adapters/pirate/aliases/live", {"targets": [{"version": version.id}]})
    assert by_id.status_code == 400
    assert port.targets() == {1: 100}


def test_n_13_a_tenant_that_is_none_is_not_found_on_every_route(
    admin: TestClient, as_admin: dict[str, str], theirs: Theirs, context: PlatformContext
) -> None:
    stored = list(context.store.entries(""))
    for slug in ("nobody", "%2e%2e", "..%2fharbour", "orchard%00", "ORCHARD", "ten_" + "0" * 26):
        port = Port(admin, SLUG.format(slug=slug), as_admin, "")
        for operation, method, path in routes(admin, SLUG):
            if operation != "describe_uploads":
                status = call(port, operation, method, path, theirs).status_code
                # With a slash in it the address is another one, which may know other methods.
                assert status in ((400, 404, 405) if "%2f" in slug else (400, 404)), (slug, operation)
    assert list(context.store.entries("")) == stored


def test_every_route_of_adapters_wants_somebody(api: TestClient, admin: TestClient, theirs: Theirs) -> None:
    for client, root, where in ((api, "/v1", "/v1"), (admin, SLUG, SLUG.format(slug="harbour"))):
        port = Port(client, where, {}, "")
        for operation, method, path in routes(client, root):
            if operation != "describe_uploads":
                assert call(port, operation, method, path, theirs).status_code == 401, operation
