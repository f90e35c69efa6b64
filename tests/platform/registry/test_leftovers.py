"""What a crash leaves behind is removed, and what is in use is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import update

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Upload
from lorikeet_platform.jobs.queue import enqueue, lease
from lorikeet_platform.registry.uploads.leftovers import LeftoverCleaner, TemporaryFiles, validation_prefix
from tests.support.platform_parts import FakeClock, Uploader, a_version

HOURS = 3600


@pytest.fixture
def cleaner(context: PlatformContext, clock: FakeClock) -> LeftoverCleaner:
    return LeftoverCleaner(db=context.db, store=context.store, clock=clock)


@pytest.fixture
def temporary(context: PlatformContext, clock: FakeClock) -> TemporaryFiles:
    return TemporaryFiles(db=context.db, folder=context.settings.temporary_dir, clock=clock)


def aged(path: Path, clock: FakeClock, hours: float) -> Path:
    at_s = clock.now / 1_000_000 - hours * HOURS
    os.utime(path, (at_s, at_s))
    return path


def test_temporary_files_go_when_nobody_can_be_working_on_them(
    temporary: TemporaryFiles, context: PlatformContext, clock: FakeClock
) -> None:
    folder = context.settings.temporary_dir
    temporary.remove_old()  # before the folder exists
    for name in ("validate-old", "validate-new", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_bytes(b"x")
    for name in ("slice-old", "slice-new"):
        (folder / name).write_bytes(b"x")
    for name, hours in {
        "validate-old": 1.1,
        "validate-new": 0.5,
        "other": 99,
        "slice-old": 24.1,
        "slice-new": 23.5,
    }.items():
        aged(folder / name, clock, hours)
    temporary.remove_old()
    assert {path.name for path in folder.iterdir()} == {"validate-new", "other", "slice-new"}


def test_the_folder_of_a_job_stays_for_as_long_as_somebody_works_on_it(
    temporary: TemporaryFiles, context: PlatformContext, clock: FakeClock, uploader: Uploader
) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, uploader.tenant, name="pirate", state="validating")
        job = enqueue(work, tenant_id=version.tenant_id, kind="validate", version_id=version.id, now=clock.now)
    with context.db.platform.unit_of_work() as work:
        assert lease(work, job.id, clock.now) is not None
    folder = context.settings.temporary_dir / f"{validation_prefix(job.id)}x1"
    folder.mkdir(parents=True)
    aged(folder, clock, 3)
    temporary.remove_old()
    assert folder.exists()
    clock.advance(600)  # nobody extended the lease
    temporary.remove_old()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("state", "is_kept"), [("open", True), ("sealed", True), ("consumed", False), ("terminated", False)]
)
def test_slices_go_when_their_upload_is_over(
    cleaner: LeftoverCleaner, context: PlatformContext, uploader: Uploader, state: str, is_kept: bool
) -> None:
    upload, other = uploader.whole(b"lost"), uploader.whole(b"in use")
    with context.db.platform.unit_of_work() as work:
        work.execute(update(Upload).where(Upload.id == upload).values(state=state))
    cleaner.clean()
    stored = {entry.key.split("/")[2] for entry in context.store.entries("uploads/")}
    assert stored == ({upload, other} if is_kept else {other})
