"""What a key began before it ended changes nothing afterwards, and long answers end with it.

A gateway that has not heard of the end goes on admitting the key for a while; its transactions look for themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, ApiKey
from lorikeet_platform.db.tables import Tenant as TenantRow
from lorikeet_platform.registry.files import READ_BYTES, file_key
from lorikeet_platform.registry.routes import files as file_routes
from tests.support.adapter_requests import Asking
from tests.support.platform_parts import WEIGHTS, FakeClock, Tenant, Uploader
from tests.support.registry_port import refusal
from tests.support.scripted_engine import ScriptedEngine
from tests.support.tenant_things import dump

End = Callable[[PlatformContext, Tenant], None]


def change_key(context: PlatformContext, key: Tenant, **values: Any) -> None:
    """In the database alone: as another gateway's change that nobody here has heard of yet."""
    with context.db.platform.unit_of_work() as work:
        mine = update(ApiKey).where(ApiKey.tenant_id == key.id, ApiKey.id == key.key_id)
        work.execute(mine.values(**values), execution_options={"synchronize_session": False})


def revoke(context: PlatformContext, key: Tenant) -> None:
    change_key(context, key, status="revoked", revoked_at=context.clock())


def expire(context: PlatformContext, key: Tenant) -> None:
    change_key(context, key, expires_at=context.clock())


def suspend(context: PlatformContext, key: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        tenant = work.get_one(TenantRow, key.id)
        tenant.status, tenant.suspended_at = "suspended", context.clock()


def take_scopes(context: PlatformContext, key: Tenant) -> None:
    change_key(context, key, scopes=["adapters:read"])


def take_adapter(context: PlatformContext, key: Tenant) -> None:
    change_key(context, key, allowed_adapters=[])


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (revoke, 401, "invalid_api_key"),
        (expire, 401, "invalid_api_key"),
        (suspend, 403, "tenant_suspended"),
        (take_scopes, 403, "insufficient_scope"),
        (take_adapter, 403, "adapter_not_allowed_for_key"),
    ],
)
def test_n4_no_transaction_of_an_ended_key_changes_anything(
    context: PlatformContext, whole: Asking, end: End, status: int, code: str
) -> None:
    assert whole.ask("GET", "/adapters").status_code == 200  # from now on the gateway remembers the key
    end(context, whole.key)
    before = dump(context.db)
    for what, request in whole.requests("alpha").items():
        if what.startswith("read") or what in ("seal", "retry", "restore"):
            continue  # those of the last three that change anything are below
        answer = whole.api.send(request)
        assert refusal(answer)[:2] == (status, code), what
    assert dump(context.db) == before


def test_n4_a_key_that_ends_while_the_engine_loads_moves_no_alias(
    context: PlatformContext, whole: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load(_engine: ScriptedEngine, _tenant: str, _digest: str, _timeout_s: float) -> None:
        revoke(context, whole.key)

    monkeypatch.setattr(ScriptedEngine, "warm_adapter", load)
    moved = whole.ask("PUT", "/adapters/alpha/aliases/live", json={"targets": [{"version": 2, "weight": 100}]})
    assert refusal(moved)[:2] == (401, "invalid_api_key")
    with context.db.platform.read() as work:
        assert work.get_one(ApiKey, (whole.key.id, whole.key.key_id)).status == "revoked"


@pytest.mark.parametrize("action", ["restore", "retry"])
def test_n4_a_key_that_ended_brings_no_version_back(context: PlatformContext, whole: Asking, action: str) -> None:
    state = {"restore": "retired", "retry": "failed_internal"}[action]
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).where(AdapterVersion.number == 2).values(state=state, digest=None))
    assert whole.ask("GET", "/adapters").status_code == 200
    revoke(context, whole.key)
    assert refusal(whole.ask("POST", f"/adapters/alpha/versions/2/{action}"))[:2] == (401, "invalid_api_key")


def test_n4_a_key_that_ended_seals_nothing(context: PlatformContext, uploader: Uploader) -> None:
    uploads = {name: uploader.whole(b"{}", filename=name) for name in ("adapter_config.json", WEIGHTS)}
    revoke(context, uploader.tenant)
    assert refusal(uploader.seal_uploads(uploads))[:2] == (401, "invalid_api_key")
    with context.db.platform.read() as work:
        assert work.query(AdapterVersion).count() == 0


def test_n4_whoever_waits_for_a_verdict_waits_no_longer_than_the_key_lives(
    context: PlatformContext, whole: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).where(AdapterVersion.number == 2).values(state="validating", digest=None))
    n_looks = 0

    async def sleep(_seconds: float) -> None:
        nonlocal n_looks
        n_looks += 1
        revoke(context, whole.key)

    monkeypatch.setattr("lorikeet_platform.registry.routes.versions.asyncio.sleep", sleep)
    waited = whole.ask("GET", "/adapters/alpha/versions/2?wait=30")
    assert (refusal(waited)[:2], n_looks) == ((401, "invalid_api_key"), 1)


def test_n4_a_download_ends_with_its_key(
    context: PlatformContext, uploader: Uploader, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * (READ_BYTES // 64)
    uploader.seal(b"{}", content)
    path = tmp_path / "file"
    path.write_bytes(content)
    context.store.put_file(file_key(uploader.tenant.id, hashlib.sha256(content).hexdigest()), path)
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(state="ready", digest="d" * 64, ready_at=clock()))
    seconds = iter(range(100))

    def monotonic() -> float:
        if (second := next(seconds)) == 2:
            revoke(context, uploader.tenant)
        return float(second)

    monkeypatch.setattr(file_routes, "monotonic", monotonic)
    place = f"/v1/adapters/pirate/versions/1/files/{WEIGHTS}"
    cut_short = uploader.client.get(place, headers=uploader.tenant.auth)
    assert 0 < len(cut_short.content) < len(content)
    assert cut_short.headers["content-length"] == str(len(content))
