"""Bytes are deleted outside of transactions, and nobody relies on what is being deleted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import select

from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.blob import BlobUnavailable
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, BlobDeletion, Upload
from lorikeet_platform.jobs.runner import Postponed
from lorikeet_platform.registry.uploads.leftovers import LeftoverCleaner
from lorikeet_platform.registry.work.purging import PurgeChore
from lorikeet_platform.registry.work.references import LONGEST_DELETION_US, announce_digest, delete_image_if_unused
from tests.platform.registry.work.conftest import RunNext
from tests.support.platform_parts import FakeClock, Tenant, Uploader, a_version
from tests.support.worker_tools import ScriptedTools

DIGEST = "d" * 64


@pytest.fixture
def image(context: PlatformContext, harbour: Tenant, tmp_path: Path) -> str:
    """Key of an image that no version needs."""
    content = tmp_path / "image"
    content.write_bytes(b"image")
    key = image_key(harbour.id, DIGEST)
    context.store.put_file(key, content)
    return key


@pytest.fixture
def coming(context: PlatformContext, harbour: Tenant) -> AdapterVersion:
    """A version that is being validated; its image will be of that digest."""
    with context.db.platform.unit_of_work() as work:
        return a_version(work, harbour, name="pirate", state="validating")


def announce(context: PlatformContext, version: AdapterVersion, now: int) -> None:
    with context.db.platform.unit_of_work() as work:
        announce_digest(work, version.tenant_id, version.id, DIGEST, now=now)


def marks(context: PlatformContext) -> int:
    with context.db.platform.read() as work:
        return len(work.scalars(select(BlobDeletion)).all())


def test_a_store_that_takes_its_time_holds_no_transaction_up_and_who_needs_the_bytes_waits(
    context: PlatformContext,
    harbour: Tenant,
    orchard: Tenant,
    image: str,
    coming: AdapterVersion,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers = threading.Event(), threading.Event()
    delete = context.store.delete

    def slowly(key: str) -> None:
        asked.set()
        assert answers.wait(20)
        delete(key)

    monkeypatch.setattr(context.store, "delete", slowly)
    thread = threading.Thread(
        target=delete_image_if_unused,
        args=(context.db, context.store, harbour.id, DIGEST),
        kwargs={"clock": clock},
    )
    thread.start()
    assert asked.wait(10)
    with context.db.platform.unit_of_work() as work:  # on SQLite, there is one writer at a time
        a_version(work, orchard, name="gardener")
    with pytest.raises(Postponed, match="WaitsForDeletion"):
        announce(context, coming, clock.now)
    answers.set()
    thread.join(20)
    assert (context.store.size(image), marks(context)) == (None, 0)
    announce(context, coming, clock.now)


def test_a_deletion_whose_outcome_nobody_knows_is_waited_for_as_long_as_it_may_last(
    context: PlatformContext,
    harbour: Tenant,
    image: str,
    coming: AdapterVersion,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_answer(_key: str) -> None:
        raise BlobUnavailable("503")

    with monkeypatch.context() as patch:
        patch.setattr(context.store, "delete", no_answer)
        with pytest.raises(BlobUnavailable):
            delete_image_if_unused(context.db, context.store, harbour.id, DIGEST, clock=clock)
    chore = PurgeChore(db=context.db, clock=clock)
    clock.now += LONGEST_DELETION_US - 1
    chore.enqueue_due()
    with pytest.raises(Postponed):
        announce(context, coming, clock.now)
    clock.now += 1
    announce(context, coming, clock.now)
    assert marks(context) == 1
    chore.enqueue_due()
    assert marks(context) == 0
    assert not delete_image_if_unused(context.db, context.store, harbour.id, DIGEST, clock=clock)
    assert context.store.size(image) is not None


def test_of_two_deletions_the_one_that_ends_first_says_nothing_of_the_other(
    context: PlatformContext,
    harbour: Tenant,
    image: str,
    coming: AdapterVersion,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete = context.store.delete

    def with_another(key: str) -> None:
        monkeypatch.setattr(context.store, "delete", delete)
        assert delete_image_if_unused(context.db, context.store, harbour.id, DIGEST, clock=clock)
        with pytest.raises(Postponed):
            announce(context, coming, clock.now)
        delete(key)

    monkeypatch.setattr(context.store, "delete", with_another)
    assert delete_image_if_unused(context.db, context.store, harbour.id, DIGEST, clock=clock)
    announce(context, coming, clock.now)


def test_slices_of_a_version_deleted_while_the_store_is_down_are_found(
    run_next: RunNext,
    uploader: Uploader,
    files: tuple[bytes, bytes],
    tools: ScriptedTools,
    clock: FakeClock,
    context: PlatformContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_down() -> None:
        raise RuntimeError

    def no_answer(*_: object) -> None:
        raise BlobUnavailable("503")

    tools.certifier.step = break_down
    uploader.seal(*files)
    for _ in range(5):
        run_next()
        clock.advance(120)
    path = "/v1/adapters/pirate/versions/1"
    assert uploader.client.delete(path, headers=uploader.tenant.auth).status_code == 202
    with monkeypatch.context() as patch:
        patch.setattr(context.store, "delete", no_answer)
        for _ in range(8):  # more often than a job may fail
            assert not run_next()
            clock.advance(120)
    with context.db.platform.read() as work:
        assert work.scalars(select(AdapterVersion.state)).all() == ["purged"]
        assert set(work.scalars(select(Upload.state))) == {"consumed"}
    LeftoverCleaner(db=context.db, store=context.store, clock=clock).clean()
    assert list(context.store.entries("uploads/")) == []
    assert run_next()
