"""What a tenant may begin to send, and how many bodies at once; a full disk takes no new uploads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_adapters.store.blob import BlobUnavailable, FreeSpace
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import Limit
from lorikeet_platform.registry.uploads import receiving
from lorikeet_platform.registry.uploads.receiving import ReceivingSlots
from lorikeet_platform.registry.uploads.service import get_upload
from lorikeet_platform.settings import GIB
from tests.support.platform_parts import TUS, FakeClock, Uploader, a_tenant, a_version, limit_tenant, make_context
from tests.support.upload_answers import code

CONTENT = bytes(range(256)) * 16

Open = Callable[..., Any]


@pytest.fixture
def limited(tmp_path: Path, db: Database, clock: FakeClock) -> Open:
    """A tenant's uploader under the given limits."""

    @contextmanager
    def open_with(**limits: int | tuple[int, int]) -> Iterator[tuple[Uploader, PlatformContext]]:
        context = make_context(tmp_path, db, clock)
        tenant = a_tenant(context, "harbour")
        limit_tenant(db, tenant.id, **limits)
        with TestClient(create_tenant_app(context)) as client:
            yield Uploader(client, tenant), context

    return open_with


def test_bytes_on_their_way_are_bounded_and_free_again_when_an_upload_ends(limited: Open) -> None:
    with limited(upload_inflight_bytes=2 * len(CONTENT)) as (uploader, _):
        first = uploader.create(CONTENT).headers["location"]
        assert uploader.create(CONTENT).status_code == 201
        assert code(uploader.create(b"x")) == (429, "too_many_uploads")
        uploader.client.delete(first, headers={**uploader.tenant.auth, **TUS})
        assert uploader.create(CONTENT).status_code == 201


def test_an_expired_upload_counts_no_more(limited: Open, clock: FakeClock) -> None:
    with limited(open_uploads=1, upload_inflight_bytes=len(CONTENT)) as (uploader, _):
        uploader.create(CONTENT)
        assert code(uploader.create(CONTENT)) == (429, "too_many_uploads")
        clock.advance(25 * 3600)
        assert uploader.create(CONTENT).status_code == 201


def test_names_of_adapters_are_bounded_and_those_that_exist_go_on(limited: Open) -> None:
    with limited(adapters=2) as (uploader, context):
        with context.db.platform.unit_of_work() as work:
            a_version(work, uploader.tenant, name="pirate")
        assert uploader.create(CONTENT, adapter="haiku").status_code == 201
        assert code(uploader.create(CONTENT, adapter="json")) == (403, "adapter_quota_exceeded")
        assert uploader.create(CONTENT, adapter="haiku").status_code == 201
        assert uploader.create(CONTENT, adapter="pirate").status_code == 201


@pytest.mark.parametrize(("state", "counts"), [("ready", True), ("rejected", True), ("purged", False)])
def test_bytes_of_versions_count_until_they_are_purged(limited: Open, state: str, counts: bool) -> None:
    with limited(adapter_bytes=len(CONTENT) + 9) as (uploader, context):
        with context.db.platform.unit_of_work() as work:
            a_version(work, uploader.tenant, name="pirate", state=state)  # of 10 bytes
        response = uploader.create(CONTENT)
        if counts:
            assert code(response) == (403, "adapter_quota_exceeded")
        else:
            assert response.status_code == 201


def test_another_tenants_uploads_do_not_count(limited: Open) -> None:
    with limited(open_uploads=1) as (uploader, context):
        other = Uploader(uploader.client, a_tenant(context, "orchard"))
        assert uploader.create(CONTENT).status_code == 201
        assert other.create(CONTENT).status_code == 201


@pytest.mark.parametrize(
    ("free", "total", "is_taken"),
    [
        (3 * GIB, 1000 * GIB, True),  # more than 2 GiB stay free, though less than a twentieth
        (2 * GIB + 4095, 1000 * GIB, False),
        (1 * GIB, 10 * GIB, True),  # more than a twentieth stays free
        (GIB // 4, 10 * GIB, False),
    ],
)
def test_a_full_disk_takes_no_new_uploads_but_the_rest_of_those_that_began(
    context: PlatformContext,
    uploader: Uploader,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    total: int,
    is_taken: bool,
) -> None:
    begun = uploader.create(CONTENT).headers["location"]
    monkeypatch.setattr(LocalBlobStore, "free_space", lambda _self: FreeSpace(free, total))
    response = uploader.create(CONTENT)
    if is_taken:
        assert response.status_code == 201
    else:
        assert code(response) == (507, "storage_full")
    assert uploader.append(begun, 0, CONTENT).status_code == 204


def test_a_store_without_an_end_is_never_full(context: PlatformContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalBlobStore, "free_space", lambda _self: None)
    with TestClient(create_tenant_app(context)) as client:
        assert Uploader(client, a_tenant(context, "harbour")).create(CONTENT).status_code == 201


def test_a_store_that_does_not_answer_costs_no_byte_that_was_kept(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = uploader.create(CONTENT).headers["location"]
    uploader.append(location, 0, CONTENT[:100])

    def fail(*_arguments: object) -> None:
        raise BlobUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(LocalBlobStore, "put_file", fail)
        response = uploader.append(location, 100, CONTENT[100:])
        assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")
        assert response.headers["x-should-retry"] == "true"
    assert uploader.offset(location) == 100
    assert uploader.append(location, 100, CONTENT[100:]).status_code == 204


def test_n_43_a_body_that_trickles_is_ended_and_keeps_what_came(
    context: PlatformContext, uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr(receiving, "monotonic", lambda: float(next(seconds)))
    location = uploader.create(CONTENT).headers["location"]
    with context.db.platform.read() as work:
        upload = get_upload(work, uploader.tenant.id, location.rpartition("/")[2], context.clock())

    actor = Actor(uploader.tenant.id, ADMINISTRATOR)

    async def one_byte_a_second() -> AsyncIterator[bytes]:
        for at in range(150):
            yield CONTENT[at : at + 1]

    with pytest.raises(PlatformError, match="request_timeout"):
        asyncio.run(receiving.receive_slice(context, actor, upload, one_byte_a_second(), None))
    monkeypatch.undo()
    assert uploader.offset(location) == 31
    assert uploader.append(location, 31, CONTENT[31:]).status_code == 204


def test_bodies_of_one_tenant_at_once_are_bounded_and_others_have_their_own() -> None:
    slots = ReceivingSlots()
    two, one = Limit(2, 0, "plan"), Limit(1, 0, "tenant")
    with slots.hold("ten_1", two), slots.hold("ten_1", two):
        with pytest.raises(PlatformError, match="too_many_uploads"), slots.hold("ten_1", two):
            pass
        with slots.hold("ten_2", two):
            pass
    with slots.hold("ten_1", one):
        pass
    assert not slots._held


def test_a_body_that_broke_gives_its_place_back(limited: Open) -> None:
    with limited(open_uploads=1) as (uploader, _):
        location = uploader.create(CONTENT).headers["location"]
        for _ in range(3):
            assert uploader.append(location, 1, CONTENT).status_code == 409
        assert uploader.append(location, 0, CONTENT).status_code == 204


def test_a_limit_of_zero_lets_nothing_in_and_asking_again_does_not_help(limited: Open) -> None:
    with limited(open_uploads=0) as (uploader, _):
        refused = uploader.create(CONTENT)
        assert code(refused) == (429, "too_many_uploads")
        assert (refused.headers["x-should-retry"], "retry-after" in refused.headers) == ("false", False)


def test_the_smaller_of_plan_and_tenant_binds_and_is_named(limited: Open) -> None:
    with limited(adapters=100_000, adapter_bytes=10) as (uploader, _):
        refused = uploader.create(CONTENT)
        assert code(refused) == (403, "adapter_quota_exceeded")
        assert "the tenant's limit is 10 bytes" in refused.json()["error"]["message"].lower()


def test_an_administrators_body_is_bounded_like_the_tenants_own(
    limited: Open, admin: TestClient, as_admin: dict[str, str]
) -> None:
    with limited(open_uploads=1) as (uploader, _):
        location = uploader.create(CONTENT).headers["location"].replace("/v1", "/admin/v1/tenants/harbour")
        sent = {**as_admin, **TUS, "upload-offset": "0", "content-type": "application/offset+octet-stream"}
        assert admin.patch(location, content=CONTENT, headers=sent).status_code == 204
