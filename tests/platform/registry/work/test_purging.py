"""The end of a version's bytes: when its time is over, when nothing runs on it, and never those of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select

from lorikeet_adapters.source import image_key
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, Job
from lorikeet_platform.registry.work.purging import PurgeChore
from lorikeet_platform.registry.work.references import announce_digest, delete_image_if_unused
from tests.platform.registry.work.conftest import Push, Reread, RunNext
from tests.support.lora_files import tensors, write_files
from tests.support.platform_parts import FakeClock, Uploader, a_version
from tests.support.worker_tools import ScriptedTools

Keys = Callable[[str], set[str]]
Call = Callable[[str, str], int]
DAY_S = 24 * 3_600


@pytest.fixture
def chore(context: PlatformContext, clock: FakeClock) -> PurgeChore:
    return PurgeChore(db=context.db, clock=clock)


@pytest.fixture
def call(uploader: Uploader) -> Call:
    """A request about a version of the adapter `pirate`; returns the status."""

    def send(method: str, path: str) -> int:
        body: dict[str, str] | None = {} if method == "POST" and path.endswith("retire") else None
        address = f"/v1/adapters/pirate/versions/{path}"
        return uploader.client.request(method, address, json=body, headers=uploader.tenant.auth).status_code

    return send


def jobs(context: PlatformContext, kind: str, *states: str) -> int:
    with context.db.platform.read() as work:
        return len(work.scalars(select(Job).where(Job.kind == kind, Job.state.in_(states))).all())


def test_a_deleted_version_is_purged_as_soon_as_nothing_runs_on_it(
    push: Push, call: Call, run_next: RunNext, tools: ScriptedTools, clock: FakeClock, reread: Reread, keys: Keys
) -> None:
    first, version = push(1), push(2)
    assert version.digest is not None
    tools.engine.running[version.tenant_id, version.digest] = 1
    assert call("DELETE", "2") < 300
    clock.advance(2)
    assert not run_next()  # still running
    assert reread(version).state == "retired"
    assert image_key(version.tenant_id, version.digest) in keys("images/")
    tools.engine.running.clear()
    clock.advance(2)
    assert run_next()  # told the engine; asks for the purge
    assert run_next()
    assert reread(version).state == "purged"
    assert first.digest is not None
    assert keys("images/") == {image_key(first.tenant_id, first.digest)}
    assert len(keys("files/")) == 2


def test_a_retired_version_can_be_restored_for_seven_days_and_is_purged_then(
    push: Push,
    call: Call,
    run_next: RunNext,
    clock: FakeClock,
    reread: Reread,
    keys: Keys,
    chore: PurgeChore,
    context: PlatformContext,
) -> None:
    push(1)
    version = push(2)
    assert call("POST", "2/retire") == 200
    clock.advance(2)
    assert run_next()
    clock.advance(7 * DAY_S - 10)
    chore.enqueue_due()
    assert jobs(context, "purge", "queued") == 0
    clock.advance(10)
    chore.enqueue_due()
    chore.enqueue_due()
    assert jobs(context, "purge", "queued") == 1
    assert run_next()
    assert reread(version).state == "purged"
    assert len(keys("images/")) == 1
    chore.enqueue_due()
    assert jobs(context, "purge", "queued") == 0


def test_a_version_restored_at_the_last_moment_is_not_purged(
    push: Push,
    call: Call,
    run_next: RunNext,
    clock: FakeClock,
    reread: Reread,
    keys: Keys,
    context: PlatformContext,
    chore: PurgeChore,
) -> None:
    push(1)
    version = push(2)
    call("POST", "2/retire")
    clock.advance(2)
    run_next()
    clock.advance(7 * DAY_S)
    chore.enqueue_due()
    with context.db.platform.unit_of_work() as work:
        row = work.get_one(AdapterVersion, (version.tenant_id, version.id))
        row.state, row.purge_after = "ready", None
    assert run_next()
    assert reread(version).state == "ready"
    assert len(keys("images/")) == 2


def test_a_rejected_version_is_purged_after_thirty_days(
    push: Push, uploader: Uploader, run_next: RunNext, clock: FakeClock, chore: PurgeChore, context: PlatformContext
) -> None:
    uploader.seal(b"{}", b"no weights")
    run_next()
    clock.advance(30 * DAY_S - 1)
    chore.enqueue_due()
    assert jobs(context, "purge", "queued") == 0
    clock.advance(1)
    chore.enqueue_due()
    assert run_next()
    with context.db.platform.read() as work:
        assert work.scalars(select(AdapterVersion.state)).all() == ["purged"]


def test_bytes_that_another_version_needs_stay(
    push: Push,
    call: Call,
    run_next: RunNext,
    clock: FakeClock,
    keys: Keys,
    uploader: Uploader,
    context: PlatformContext,
) -> None:
    push(1)
    push(2)
    twin = push(2, adapter="twin")  # the same files in another adapter of the tenant
    assert (len(keys("images/")), len(keys("files/"))) == (2, 3)
    assert call("DELETE", "2") < 300
    clock.advance(2)
    assert run_next()
    assert run_next()
    assert (len(keys("images/")), len(keys("files/"))) == (2, 3)
    assert uploader.client.delete("/v1/adapters/twin", headers=uploader.tenant.auth).status_code < 300
    for _ in range(4):
        clock.advance(2)
        if jobs(context, "retire", "queued") + jobs(context, "purge", "queued"):
            run_next()
    assert twin.digest is not None
    assert image_key(twin.tenant_id, twin.digest) not in keys("images/")
    assert (len(keys("images/")), len(keys("files/"))) == (1, 2)


def test_slices_kept_for_another_validation_go_with_the_version(
    uploader: Uploader,
    files: tuple[bytes, bytes],
    run_next: RunNext,
    tools: ScriptedTools,
    clock: FakeClock,
    call: Call,
    keys: Keys,
) -> None:
    def break_down() -> None:
        raise RuntimeError

    tools.certifier.step = break_down
    uploader.seal(*files)
    for _ in range(5):
        run_next()
        clock.advance(60)
    assert len(keys("uploads/")) == 2
    assert call("DELETE", "1") < 300
    assert run_next()
    assert keys("") == set()


def test_an_engine_that_nobody_reaches_holds_a_purge_up_for_minutes_at_most(
    push: Push,
    call: Call,
    run_next: RunNext,
    tools: ScriptedTools,
    clock: FakeClock,
    reread: Reread,
    chore: PurgeChore,
    context: PlatformContext,
    runner: object,
) -> None:
    push(1)
    version = push(2)
    tools.engine.fault = EngineUnavailable("gone")
    call("DELETE", "2")
    chore.enqueue_due()
    with context.db.platform.read() as work:
        purge = work.scalars(select(Job.id).where(Job.kind == "purge")).one()
    clock.advance(60)
    assert not runner.run(purge)  # type: ignore[attr-defined]
    assert reread(version).state == "retired"
    clock.advance(100)
    assert runner.run(purge)  # type: ignore[attr-defined]
    assert reread(version).state == "purged"


def test_an_image_that_a_version_is_about_to_store_is_not_deleted(
    context: PlatformContext, push: Push, uploader: Uploader, keys: Keys
) -> None:
    version = push(1)
    assert version.digest is not None
    with context.db.platform.unit_of_work() as work:
        old = work.get_one(AdapterVersion, (version.tenant_id, version.id))
        old.state = "purged"
        coming = a_version(work, uploader.tenant, name="twin", state="validating")
        announce_digest(work, version.tenant_id, coming.id, version.digest, now=1)
    assert not delete_image_if_unused(context.db, context.store, version.tenant_id, version.digest)
    assert len(keys("images/")) == 1
    with context.db.platform.unit_of_work() as work:
        work.get_one(AdapterVersion, (version.tenant_id, coming.id)).state = "purged"
    assert delete_image_if_unused(context.db, context.store, version.tenant_id, version.digest)
    assert keys("images/") == set()


def test_a_purge_that_is_cut_off_is_finished_later(
    push: Push,
    call: Call,
    run_next: RunNext,
    clock: FakeClock,
    keys: Keys,
    context: PlatformContext,
    monkeypatch: pytest.MonkeyPatch,
    reread: Reread,
) -> None:
    push(1)
    version = push(2)
    call("DELETE", "2")
    clock.advance(2)
    run_next()

    def no_answer(_key: str) -> None:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(context.store, "delete", no_answer)
        assert not run_next()
    assert (reread(version).state, len(keys("images/"))) == ("purged", 2)
    clock.advance(5)
    assert run_next()
    assert (len(keys("images/")), len(keys("files/"))) == (1, 2)


def test_the_same_content_can_be_pushed_again_after_it_was_purged(
    push: Push, call: Call, run_next: RunNext, clock: FakeClock, uploader: Uploader, tmp_path: object, keys: Keys
) -> None:
    push(1)
    push(2)
    call("DELETE", "2")
    clock.advance(2)
    run_next()
    run_next()
    content = write_files(tmp_path / "again", tensors(seed=2))  # type: ignore[operator]
    again = uploader.seal(content.config.read_bytes(), content.weights.read_bytes()).json()
    assert again["number"] == 3
    assert run_next()
    assert len(keys("images/")) == 2
