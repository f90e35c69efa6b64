"""Every route that changes something writes its event in the change's own transaction, and nobody else writes any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from lorikeet_platform.accounts.owner_token import issue_owner_token
from lorikeet_platform.api_keys.minting import Wanted
from lorikeet_platform.api_keys.service import create_key
from lorikeet_platform.auth.scopes import SCOPES
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, AuditEvent, Job, Tenant
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.jobs import queue
from tests.support.old_rows import dump
from tests.support.platform_parts import TUS, Uploader, a_version, encode_metadata
from tests.support.platform_parts import Tenant as TenantParts
from tests.support.route_table import live_routes

# Method and path of routes that write no event, and why.
SILENT: Mapping[tuple[str, str], str] = {
    ("POST", "/v1/chat/completions"): "has a usage record",
    ("POST", "/v1/completions"): "has a usage record",
    ("POST", "/admin/v1/plan"): "asks, and changes nothing",
    ("PATCH", "/v1/uploads/{upload_id}"): "bytes on their way, of an upload that has its events",
    ("PATCH", "/admin/v1/tenants/{slug}/uploads/{upload_id}"): "the same",
}
ADAPTER, VERSION, ALIAS = "/adapters/pirate", "/adapters/pirate/versions/1", "/adapters/pirate/aliases/live"


@dataclass
class Place:
    """The platform with a tenant, and what a change needs of it."""

    context: PlatformContext
    api: TestClient
    admin: TestClient
    tenant: TenantParts
    as_admin: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    def version(self, *, number: int = 1, state: str = "ready", live: bool = False) -> None:
        with self.context.db.platform.unit_of_work() as work:
            version = a_version(work, self.tenant, name="pirate", number=number, state=state, live=live)
            if state in ("retired", "quarantined"):
                version.retired_at = self.context.clock()
            self.ids["version"] = version.id


@dataclass(frozen=True)
class Case:
    """One change: the route's path under the tenant's prefix, or whole; what it writes; what has to be there before."""

    method: str
    path: str
    action: str
    body: Mapping[str, Any] | None = None
    prepare: Callable[[Place], None] = lambda _place: None
    headers: Callable[[Place], Mapping[str, str]] = lambda _place: {}
    values: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def two_revisions(place: Place) -> None:
    place.version(live=True)
    place.version(number=2)
    answer = place.admin.put(
        "/admin/v1/tenants/harbour" + ALIAS, json={"targets": [{"version": 2, "weight": 100}]}, headers=place.as_admin
    )
    assert answer.status_code == 200, answer.text


def an_upload(place: Place) -> None:
    created = Uploader(place.api, place.tenant).create(b"content", filename="adapter_config.json")
    place.ids["upload_id"] = created.headers["location"].rpartition("/")[2]


def two_whole_uploads(place: Place) -> None:
    uploader = Uploader(place.api, place.tenant)
    place.ids |= {
        name: uploader.whole(b"{}", filename=name) for name in ("adapter_config.json", "adapter_model.safetensors")
    }


def another_key(place: Place) -> None:
    with place.context.db.platform.unit_of_work() as work:
        key, secret = create_key(
            work, place.context.pepper, tenant_id=place.tenant.id, name="second", now=place.context.clock()
        )
        place.ids |= {"id": key.id, "secret": secret}


def a_suspended_tenant(place: Place) -> None:
    answer = place.admin.post("/admin/v1/tenants/harbour/suspend", json={}, headers=place.as_admin)
    assert answer.status_code == 200


def a_failed_job(place: Place) -> None:
    place.version(state="validating")
    with place.context.db.platform.unit_of_work() as work:
        version_id = place.ids["version"]
        job = queue.enqueue(work, tenant_id=place.tenant.id, kind="validate", version_id=version_id, now=1)
        work.get_one(AdapterVersion, (place.tenant.id, version_id)).state = "failed_internal"
        work.flush()
        row = work.get_one(Job, (place.tenant.id, job.id))
        row.state, row.finished_at = "failed", 2
        place.ids["job_id"] = job.id


def an_owners_link(place: Place) -> None:
    with place.context.db.platform.unit_of_work() as work:
        place.ids["token"] = issue_owner_token(work, place.context.clock())


def a_signed_in_owner(place: Place) -> None:
    an_owners_link(place)
    answer = place.admin.post("/auth/bootstrap", json={"token": place.ids["token"]})
    place.ids["csrf"] = answer.json()["csrf_token"]


def upload_headers(_place: Place) -> Mapping[str, str]:
    named = {"adapter": "pirate", "filename": "adapter_config.json", "sha256": "a" * 64}
    return {**TUS, "upload-length": "7", "upload-metadata": encode_metadata(named)}


REASON = {"reason": "a test"}
ONE_TARGET = {"targets": [{"version": 1, "weight": 100}]}
# On both ports, under the prefix of each.
OF_TENANTS = (
    Case("DELETE", "/adapters/{name}", "adapter.delete", None, Place.version),
    Case("POST", "/adapters/{name}/versions", "version.create", {"files": {}}, two_whole_uploads),
    Case("DELETE", "/adapters/{name}/versions/{number}", "version.delete", None, Place.version),
    Case("POST", "/adapters/{name}/versions/{number}/retire", "version.retire", REASON, Place.version),
    Case(
        "POST",
        "/adapters/{name}/versions/{number}/restore",
        "version.restore",
        None,
        lambda place: place.version(state="retired"),
    ),
    Case(
        "POST",
        "/adapters/{name}/versions/{number}/retry",
        "version.retry",
        None,
        lambda place: place.version(state="failed_internal"),
    ),
    Case("PUT", "/adapters/{name}/aliases/{alias}", "alias.set", ONE_TARGET, Place.version),
    Case("DELETE", "/adapters/{name}/aliases/{alias}", "alias.remove", None, lambda place: place.version(live=True)),
    Case("POST", "/adapters/{name}/aliases/{alias}/rollback", "alias.rollback", {}, two_revisions),
    Case("POST", "/uploads", "upload.create", None, headers=upload_headers),
    Case("DELETE", "/uploads/{upload_id}", "upload.terminate", None, an_upload, lambda _place: TUS),
    Case("POST", "/keys", "key.create", {"name": "third", "scopes": ["inference"]}),
    Case("PATCH", "/keys/{id}", "key.update", {"name": "renamed"}, another_key),
    Case("POST", "/keys/{id}/rotate", "key.rotate", {}, another_key),
    Case("POST", "/keys/{id}/revoke", "key.revoke", {}, another_key),
    Case("PUT", "/keys/{id}/limits", "key.limits", {"limits": {"rpm": {"value": 5}}}, another_key),
)
TENANT = "/admin/v1/tenants/{slug}"
OF_THE_PLATFORM = (
    Case("POST", "/auth/bootstrap", "owner.sign_in", {}, an_owners_link),
    Case(
        "POST",
        "/auth/logout",
        "owner.sign_out",
        None,
        a_signed_in_owner,
        lambda place: {"x-csrf-token": place.ids["csrf"]},
    ),
    Case("POST", "/admin/v1/jobs/{job_id}/retry", "job.retry", None, a_failed_job),
    Case("POST", "/admin/v1/tenants", "tenant.create", {"slug": "orchard"}),
    Case("PATCH", TENANT, "tenant.update", {"weight": 3.0}),
    Case("POST", f"{TENANT}/suspend", "tenant.suspend", {}),
    Case("POST", f"{TENANT}/resume", "tenant.resume", {}, a_suspended_tenant),
    Case("PUT", f"{TENANT}/limits", "tenant.limits", {"limits": {"rpm": {"value": 5}}}),
    Case("POST", "/admin/v1/plans", "plan.create", {"id": "gold"}),
    Case("PUT", "/admin/v1/plans/{id}", "plan.limits", {"limits": {"rpm": {"value": 5}}}, values={"id": "standard"}),
    Case("POST", "/admin/v1/leaked_keys", "key.leaked", {"key": ""}, another_key),
    Case(
        "POST",
        f"{TENANT}/adapters/{{name}}/versions/{{number}}/quarantine",
        "version.quarantine",
        REASON,
        Place.version,
    ),
    Case(
        "POST",
        f"{TENANT}/adapters/{{name}}/versions/{{number}}/release",
        "version.release",
        None,
        lambda place: place.version(state="quarantined"),
    ),
)
CASES = [
    *(pytest.param("/v1", case, id=f"{case.method} /v1{case.path}") for case in OF_TENANTS),
    *(pytest.param(TENANT, case, id=f"{case.method} {TENANT}{case.path}") for case in OF_TENANTS),
    *(pytest.param("", case, id=str(case)) for case in OF_THE_PLATFORM),
]


@pytest.fixture
def place(
    context: PlatformContext, api: TestClient, admin: TestClient, harbour: TenantParts, as_admin: dict[str, str]
) -> Place:
    with context.db.platform.unit_of_work() as work:
        work.get_one(Tenant, harbour.id).keys_make_keys = True
        wanted = Wanted(scopes=SCOPES)
        key, secret = create_key(
            work, context.pepper, tenant_id=harbour.id, name="manager", now=context.clock(), wanted=wanted
        )
    return Place(context, api, admin, harbour, as_admin, {"manager": key.id, "manager_secret": secret})


def send(place: Place, prefix: str, case: Case) -> httpx2.Response:
    values = {"slug": "harbour", "name": "pirate", "number": "1", "alias": "live", **place.ids, **case.values}
    body = dict(case.body) if case.body is not None else None
    if case.action == "version.create":
        body = {"files": {name: place.ids[name] for name in ("adapter_config.json", "adapter_model.safetensors")}}
    if case.action in ("owner.sign_in", "key.leaked"):
        body = {"token": place.ids["token"]} if "token" in place.ids else {"key": place.ids["secret"]}
    client = place.api if prefix == "/v1" else place.admin
    headers = dict(case.headers(place))
    if prefix == "/v1":
        headers["authorization"] = f"Bearer {place.ids['manager_secret']}"
    elif not case.path.startswith("/auth/"):
        headers |= place.as_admin
    return client.request(case.method, (prefix + case.path).format(**values), json=body, headers=headers)


def events(place: Place) -> list[AuditEvent]:
    with place.context.db.platform.read() as work:
        return list(work.scalars(select(AuditEvent).order_by(AuditEvent.id)))


@pytest.mark.parametrize(("prefix", "case"), CASES)
def test_a_change_writes_who_made_it_and_in_which_request(place: Place, prefix: str, case: Case) -> None:
    case.prepare(place)
    known = {row.id for row in events(place)}
    answer = send(place, prefix, case)
    assert answer.is_success, answer.text
    written = [row for row in events(place) if row.id not in known]
    [row] = [row for row in written if row.action == case.action]
    expected = ("key", place.ids["manager"]) if prefix == "/v1" else ("administrator", "administrator")
    for each in written:
        assert (each.actor_kind, each.actor, each.request_id) == (*expected, answer.headers["x-request-id"])
    is_of_no_tenant = case.action.startswith(("owner.", "plan."))
    assert (row.tenant_id is None) == is_of_no_tenant
    if case.action != "tenant.create" and not is_of_no_tenant:
        assert row.tenant_id == place.tenant.id
    secrets = [place.ids[name] for name in ("secret", "token", "manager_secret") if name in place.ids]
    assert not any(secret in str((each.subject, each.details)) for each in written for secret in secrets)


@pytest.mark.parametrize(("prefix", "case"), CASES)
def test_n_75_neither_the_change_nor_its_event_is_there_without_the_other(
    place: Place, prefix: str, case: Case
) -> None:
    case.prepare(place)
    before = state(place)

    def note(session: Session, _flush: object) -> None:
        if any(isinstance(row, AuditEvent) for row in session.new):
            session.info["has_event"] = True

    def fail_at_the_end(session: Session) -> None:
        session.flush()
        if session.info.get("has_event"):  # everything is written, and not committed
            raise PlatformError("internal_error")

    def fail(*_: object) -> None:
        raise PlatformError("internal_error")

    with listening(Session, "after_flush", note), listening(Session, "before_commit", fail_at_the_end):
        assert send(place, prefix, case).status_code == 500
    assert state(place) == before
    with listening(AuditEvent, "before_insert", fail):
        assert send(place, prefix, case).status_code == 500
    assert state(place) == before
    assert send(place, prefix, case).is_success


def test_every_route_that_changes_something_is_among_the_changes() -> None:
    tested = {(case.method, prefix + case.path) for case in OF_TENANTS for prefix in ("/v1", TENANT)}
    tested |= {(case.method, case.path) for case in OF_THE_PLATFORM}
    changing = {(route.method, route.path) for route in live_routes() if route.method not in ("GET", "HEAD", "OPTIONS")}
    assert changing == tested | set(SILENT)


def test_what_is_refused_and_what_only_reads_writes_nothing(place: Place) -> None:
    place.version(live=True)
    known = len(events(place))
    for method, path, body, status in (
        ("DELETE", VERSION, None, 409),  # an alias points at it
        ("DELETE", "/adapters/haiku", None, 404),
        ("PUT", ALIAS, {}, 400),
        ("GET", ADAPTER, None, 200),
        ("GET", "/keys", None, 200),
        ("POST", "/keys/key_0/revoke", {}, 404),
    ):
        for client, prefix, headers in (
            (place.api, "/v1", {"authorization": f"Bearer {place.ids['manager_secret']}"}),
            (place.admin, "/admin/v1/tenants/harbour", place.as_admin),
        ):
            assert client.request(method, prefix + path, json=body, headers=headers).status_code == status, path
    assert len(events(place)) == known


def state(place: Place) -> dict[str, list[dict[str, Any]]]:
    """All rows, but for when keys were used."""
    with place.context.db.engine.begin() as work:
        found = dump(work)
    for key in found["api_keys"]:
        key["last_used_at"] = key["last_used_network"] = None
    for session in found["sessions"]:
        session["last_seen_at"] = session["idle_expires_at"] = None
    return found


@contextmanager
def listening(target: Any, name: str, function: Callable[..., None]) -> Iterator[None]:
    event.listen(target, name, function)
    try:
        yield
    finally:
        event.remove(target, name, function)
