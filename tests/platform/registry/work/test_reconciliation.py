"""Store and rows compared: what nobody needs goes after two runs and two days, what is missing is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lorikeet_adapters.source import image_key
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.registry.files import file_key
from lorikeet_platform.registry.work.reconciliation import Content, Findings, Reconciler, compare
from tests.platform.registry.work.conftest import Push, Reread
from tests.support.platform_parts import FakeClock, Uploader

Keys = Callable[[str], set[str]]
Put = Callable[..., str]
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
DIGEST = "d" * 64


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def reconciler(context: PlatformContext, clock: FakeClock, woken: list[str]) -> Reconciler:
    return another_worker(context, clock, woken)


def another_worker(context: PlatformContext, clock: FakeClock, woken: list[str]) -> Reconciler:
    return Reconciler(
        db=context.db,
        store=context.store,
        temporary_dir=context.settings.temporary_dir,
        wake=woken.append,
        clock=clock,
    )


@pytest.fixture
def put(context: PlatformContext, clock: FakeClock, tmp_path: Path) -> Put:
    """Stores a blob that is some hours old by the test's clock."""

    def put_blob(key: str, *, hours_old: float = 0) -> str:
        content = tmp_path / "blob"
        content.write_bytes(key.encode())
        context.store.put_file(key, content)
        at_s = clock.now / 1_000_000 - hours_old * HOUR_S
        os.utime(context.settings.blob_dir / key, (at_s, at_s))
        return key

    return put_blob


def test_both_directions_are_compared() -> None:
    image, other, file = (
        Content("ten_1", DIGEST, is_image=True),
        Content("ten_2", DIGEST, is_image=True),
        Content("ten_1", DIGEST, is_image=False),
    )
    stored = [image.key, other.key, "images/ten_3/strange"]
    findings = compare(stored, needed=[image, file], required=[file, image, file])
    assert findings == Findings(orphans=frozenset({other.key, "images/ten_3/strange"}), missing=(file,))


def test_a_key_names_its_content_and_no_other_key_does() -> None:
    for content in (Content("ten_1", DIGEST, is_image=True), Content("ten_1", DIGEST, is_image=False)):
        assert Content.of_key(content.key) == content
    for key in ("uploads/ten_1/upl_1/sli_1", "reconciliation/1", f"files/ten_1/{DIGEST}", f"images/ten_1/{DIGEST}/x"):
        assert Content.of_key(key) is None


def test_orphans_are_deleted_in_the_second_run_when_they_are_two_days_old(
    reconciler: Reconciler, uploader: Uploader, put: Put, clock: FakeClock, keys: Keys
) -> None:
    old = put(image_key(uploader.tenant.id, DIGEST), hours_old=100)
    file = put(file_key(uploader.tenant.id, DIGEST), hours_old=100)
    young = put(image_key(uploader.tenant.id, "e" * 64), hours_old=1)
    reconciler.reconcile()
    assert keys("images/") | keys("files/") == {old, file, young}
    clock.advance(DAY_S)
    reconciler.reconcile()
    assert keys("images/") | keys("files/") == {young}  # seen twice, but 25 hours old
    clock.advance(DAY_S)
    reconciler.reconcile()
    assert keys("images/") == set()


def test_what_versions_need_is_never_an_orphan(
    reconciler: Reconciler, push: Push, clock: FakeClock, keys: Keys, context: PlatformContext
) -> None:
    push(1)
    before = keys("images/") | keys("files/")
    for entry in context.store.entries(""):
        os.utime(context.settings.blob_dir / entry.key, (0, 0))
    for _ in range(3):
        reconciler.reconcile()
        clock.advance(DAY_S)
    assert keys("images/") | keys("files/") == before


def test_an_orphan_that_came_into_use_meanwhile_stays(
    reconciler: Reconciler, push: Push, clock: FakeClock, keys: Keys, context: PlatformContext
) -> None:
    version = push(1)
    for entry in context.store.entries(""):
        os.utime(context.settings.blob_dir / entry.key, (0, 0))

    def set_state(state: str) -> None:
        with context.db.platform.unit_of_work() as work:
            work.get_one(AdapterVersion, (version.tenant_id, version.id)).state = state

    set_state("purged")
    reconciler.reconcile()
    set_state("ready")
    clock.advance(DAY_S)
    reconciler.reconcile()
    assert len(keys("images/")) == 1


def test_a_run_that_is_repeated_soon_deletes_nothing_whichever_worker_makes_it(
    reconciler: Reconciler,
    put: Put,
    clock: FakeClock,
    keys: Keys,
    context: PlatformContext,
    uploader: Uploader,
    woken: list[str],
) -> None:
    put(image_key(uploader.tenant.id, DIGEST), hours_old=100)
    reconciler.reconcile()
    clock.advance(60)
    another_worker(context, clock, woken).reconcile()  # the first one failed in the end, say
    assert len(keys("images/")) == 1
    clock.advance(DAY_S)
    another_worker(context, clock, woken).reconcile()
    assert keys("images/") == set()
    assert len(keys("reconciliation/")) == 1
    assert list(context.settings.temporary_dir.iterdir()) == []


def test_a_version_whose_image_is_gone_is_quarantined(
    reconciler: Reconciler, push: Push, context: PlatformContext, reread: Reread, woken: list[str]
) -> None:
    version = push(1)
    assert version.digest is not None
    context.store.delete(image_key(version.tenant_id, version.digest))
    reconciler.reconcile()
    assert reread(version).state == "quarantined"
    assert len(woken) == 1


def test_a_version_whose_file_is_gone_goes_on_serving(
    reconciler: Reconciler, push: Push, context: PlatformContext, reread: Reread, keys: Keys
) -> None:
    version = push(1)
    context.store.delete(sorted(keys("files/"))[0])
    reconciler.reconcile()
    assert reread(version).state == "ready"


def test_notes_that_are_unreadable_delete_nothing(
    reconciler: Reconciler, put: Put, clock: FakeClock, keys: Keys, uploader: Uploader
) -> None:
    put(image_key(uploader.tenant.id, DIGEST), hours_old=100)
    put(f"reconciliation/{clock.now - 2 * DAY_S * 1_000_000:020}")
    reconciler.reconcile()
    assert len(keys("images/")) == 1


def test_what_is_not_ours_stops_no_run_and_hides_nothing(
    reconciler: Reconciler,
    push: Push,
    put: Put,
    context: PlatformContext,
    clock: FakeClock,
    uploader: Uploader,
    woken: list[str],
    reread: Reread,
    keys: Keys,
) -> None:
    tenant_id = uploader.tenant.id
    foreign = {
        put(f"images/ten_gone/{DIGEST}", hours_old=500),
        put(f"images/{tenant_id}/not-a-digest", hours_old=500),
        put(f"files/{tenant_id}/sha256/zz/{DIGEST}", hours_old=500),
        put("reconciliation/notes", hours_old=500),
    }
    orphan = put(image_key(tenant_id, DIGEST), hours_old=500)
    reconciler.reconcile()
    version = push(1)
    assert version.digest is not None
    context.store.delete(image_key(version.tenant_id, version.digest))
    clock.advance(DAY_S)
    reconciler.reconcile()
    assert reread(version).state == "quarantined"
    assert len(woken) == 1
    assert foreign <= keys("")
    assert orphan not in keys("")


def test_bytes_that_cannot_be_deleted_keep_no_others_from_it(
    reconciler: Reconciler,
    put: Put,
    context: PlatformContext,
    clock: FakeClock,
    uploader: Uploader,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (put(image_key(uploader.tenant.id, digit * 64), hours_old=500) for digit in "ab")
    reconciler.reconcile()
    delete = context.store.delete

    def refuse_first(key: str) -> None:
        if key == first:
            raise OSError
        delete(key)

    monkeypatch.setattr(context.store, "delete", refuse_first)
    clock.advance(DAY_S)
    reconciler.reconcile()
    assert (first in keys("images/"), second in keys("images/")) == (True, False)
