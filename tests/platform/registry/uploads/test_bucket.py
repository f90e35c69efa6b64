"""Uploads whose bytes lie in an S3 bucket: the same answers, and an outage that costs nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from lorikeet_adapters.store import objects
from lorikeet_adapters.store.opening import open_store
from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.registry.uploads.leftovers import LeftoverCleaner
from tests.support.platform_parts import CONFIG, TUS, WEIGHTS, FakeClock, Uploader, a_tenant
from tests.support.s3_service import CREDENTIALS, S3Service, running_s3_service
from tests.support.upload_answers import code, stored

CONTENT = bytes(range(256)) * 16


@pytest.fixture(scope="module")
def service() -> Iterator[S3Service]:
    with running_s3_service() as running:
        yield running


@pytest.fixture
def in_bucket(context: PlatformContext, service: S3Service, monkeypatch: pytest.MonkeyPatch) -> PlatformContext:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return dataclasses.replace(context, store=open_store(service.new_bucket("/lorikeet")))


@pytest.fixture
def uploader(in_bucket: PlatformContext) -> Iterator[Uploader]:
    with TestClient(create_tenant_app(in_bucket), raise_server_exceptions=False) as client:
        yield Uploader(client, a_tenant(in_bucket, "harbour"))


def test_an_upload_goes_on_where_it_stopped_and_can_be_sealed(in_bucket: PlatformContext, uploader: Uploader) -> None:
    location = uploader.create(CONTENT).headers["location"]
    for begin in range(0, len(CONTENT), 1500):
        assert uploader.offset(location) == begin
        assert uploader.append(location, begin, CONTENT[begin : begin + 1500]).status_code == 204
    assert code(uploader.append(location, 0, CONTENT[:1500])) == (409, "offset_conflict")
    assert stored(in_bucket, uploader.tenant, location) == CONTENT
    files = {WEIGHTS: location.rpartition("/")[2], CONFIG: uploader.whole(CONTENT, filename=CONFIG)}
    assert uploader.seal_uploads(files).status_code == 202


def test_an_ended_upload_leaves_nothing_in_the_bucket(in_bucket: PlatformContext, uploader: Uploader) -> None:
    location = uploader.create(CONTENT).headers["location"]
    uploader.append(location, 0, CONTENT[:100])
    assert len(list(in_bucket.store.entries(""))) == 1
    assert uploader.client.delete(location, headers={**uploader.tenant.auth, **TUS}).status_code == 204
    assert list(in_bucket.store.entries("")) == []


def test_a_bucket_out_of_reach_is_503_and_the_upload_goes_on_later(
    in_bucket: PlatformContext, uploader: Uploader, service: S3Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = uploader.create(CONTENT).headers["location"]
    uploader.append(location, 0, CONTENT[:100])
    monkeypatch.setattr(objects, "_N_RETRIES", 0)
    elsewhere = dataclasses.replace(service.new_bucket(), endpoint="http://127.0.0.1:9")
    unreachable = dataclasses.replace(in_bucket, store=open_store(elsewhere))
    with TestClient(create_tenant_app(unreachable), raise_server_exceptions=False) as client:
        refused = Uploader(client, uploader.tenant).append(location, 100, CONTENT[100:])
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
        assert "127.0.0.1" not in refused.text
    assert uploader.offset(location) == 100
    assert uploader.append(location, 100, CONTENT[100:]).status_code == 204
    assert stored(in_bucket, uploader.tenant, location) == CONTENT


def test_what_a_crash_left_half_sent_is_removed_in_time(in_bucket: PlatformContext, clock: FakeClock) -> None:
    store = in_bucket.store
    assert isinstance(store, objects.ObjectBlobStore)
    store._store.put(".staging/0123", b"half")
    cleaner = LeftoverCleaner(db=in_bucket.db, store=store, clock=clock)
    cleaner.clean()
    assert [meta["path"] for page in store._store.list() for meta in page] == [".staging/0123"]
    clock.advance(25 * 3600)
    cleaner.clean()
    assert [meta["path"] for page in store._store.list() for meta in page] == []
