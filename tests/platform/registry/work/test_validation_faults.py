"""Whose fault it is when a validation breaks, and what becomes of the version: nothing unchecked is ever ready."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from sqlalchemy import select, update

from lorikeet_adapters.sandbox.jail import JailBroken, JailUnavailable
from lorikeet_adapters.sandbox.record import ValidatedRecord
from lorikeet_adapters.store.blob import BlobUnavailable
from lorikeet_engine.certification.process import CertifierBroken
from lorikeet_engine.errors import (
    AdapterDamaged,
    AdapterRetired,
    EngineError,
    EngineFailure,
    EngineUnavailable,
    Overloaded,
    TenantLimited,
)
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, Job, Upload
from tests.platform.registry.work.conftest import RunNext
from tests.support.platform_parts import FakeClock, Uploader
from tests.support.worker_tools import ScriptedTools

State = Callable[[], tuple[str, str | None]]


@pytest.fixture
def sealed(uploader: Uploader, files: tuple[bytes, bytes]) -> str:
    """Id of a version that waits for its validation."""
    return str(uploader.seal(*files).json()["id"])


@pytest.fixture
def state(context: PlatformContext) -> State:
    def read() -> tuple[str, str | None]:
        with context.db.platform.read() as work:
            version = work.scalars(select(AdapterVersion)).one()
        return version.state, version.reject_code

    return read


def job(context: PlatformContext) -> Job:
    with context.db.platform.read() as work:
        return work.scalars(select(Job).order_by(Job.created_at.desc(), Job.id.desc())).first() or Job()


def crash(_files: Mapping[str, Path], *, image: Path) -> ValidatedRecord:
    raise JailBroken(f"it was ended by SIGSEGV before {image.name}")


def test_r29_a_crash_of_the_validator_is_ours_once_and_the_file_s_the_second_time(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, clock: FakeClock
) -> None:
    tools.jail = crash
    assert not run_next()
    assert state() == ("validating", None)
    clock.advance(5)
    assert run_next()
    assert state() == ("rejected", "validator_crashed")
    assert tools.engine.calls == []


def test_r29_a_crash_that_does_not_come_again_costs_nothing(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, clock: FakeClock
) -> None:
    whole, tools.jail = tools.jail, crash
    assert not run_next()
    tools.jail = whole
    clock.advance(5)
    assert run_next()
    assert state() == ("ready", None)


def test_r29_other_faults_between_two_crashes_do_not_hide_the_first(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, clock: FakeClock
) -> None:
    whole, tools.jail = tools.jail, crash
    assert not run_next()
    tools.jail, tools.engine.fault = whole, EngineUnavailable("gone")
    clock.advance(5)
    assert not run_next()
    tools.jail, tools.engine.fault = crash, None
    clock.advance(60)
    assert run_next()
    assert state() == ("rejected", "validator_crashed")


def test_a_machine_that_cannot_confine_looks_at_no_file_and_blames_none(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, clock: FakeClock
) -> None:
    def unavailable(_files: Mapping[str, Path], *, image: Path) -> ValidatedRecord:
        raise JailUnavailable(str(image))

    tools.jail = unavailable
    for attempt in range(1, 6):
        assert run_next() is (attempt == 5)
        clock.advance(60)
    assert state() == ("failed_internal", None)


def test_a_broken_certifier_is_ours_and_ends_as_failed_after_five_attempts(
    run_next: RunNext,
    sealed: str,
    tools: ScriptedTools,
    state: State,
    clock: FakeClock,
    context: PlatformContext,
    keys: Callable[[str], set[str]],
) -> None:
    def break_down() -> None:
        raise CertifierBroken("out of memory")

    tools.certifier.step = break_down
    for attempt in range(1, 6):
        assert state() == ("validating", None)
        assert run_next() is (attempt == 5)
        clock.advance(60)
    assert state() == ("failed_internal", None)
    assert (job(context).state, job(context).last_error) == ("failed", "CertifierBroken")
    with context.db.platform.read() as work:
        assert work.scalars(select(AdapterVersion.reject_detail)).all() == ["our fault: CertifierBroken"]
    assert len(keys("uploads/")) == 2  # for another validation
    assert keys("images/") | keys("files/") == set()


def test_what_failed_through_our_fault_can_be_validated_again(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, clock: FakeClock, uploader: Uploader
) -> None:
    def break_down() -> None:
        raise CertifierBroken("out of memory")

    tools.certifier.step = break_down
    for _ in range(5):
        run_next()
        clock.advance(60)
    tools.certifier.step = lambda: None
    path = "/v1/adapters/pirate/versions/1/retry"
    again = uploader.client.post(path, headers=uploader.tenant.auth)
    assert (again.status_code, again.json()["reject_detail"]) == (202, None)
    assert run_next()
    assert state() == ("ready", None)


@pytest.mark.parametrize("fault", [EngineUnavailable("restarting"), TenantLimited("your queue is full")])
def test_r27_without_an_engine_a_version_waits_as_long_as_it_takes_and_is_never_ready(
    run_next: RunNext,
    sealed: str,
    tools: ScriptedTools,
    state: State,
    clock: FakeClock,
    context: PlatformContext,
    fault: EngineError,
) -> None:
    tools.engine.fault = fault
    for _ in range(30):
        assert not run_next()
        assert state() == ("validating", None)
        clock.advance(60)
    assert job(context).attempt == 0
    tools.engine.fault = None
    assert run_next()
    assert state() == ("ready", None)


def test_while_the_engine_is_away_nothing_is_computed_again_and_again(
    run_next: RunNext, sealed: str, tools: ScriptedTools, clock: FakeClock
) -> None:
    tools.certifier.step = lambda: setattr(tools.engine, "fault", EngineUnavailable("crashed meanwhile"))
    for _ in range(5):
        assert not run_next()
        clock.advance(60)
    assert len(tools.certifier.seen) == 1


@pytest.mark.parametrize("fault", [Overloaded("busy"), AdapterRetired("another version of it is going")])
def test_an_engine_without_room_is_asked_again_and_nothing_is_measured_again(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, clock: FakeClock, fault: EngineError
) -> None:
    tools.engine.warm_fault = fault
    for _ in range(8):
        assert not run_next()
        clock.advance(60)
    tools.engine.warm_fault = None
    assert run_next()
    assert (state(), len(tools.certifier.seen)) == (("ready", None), 1)


@pytest.mark.parametrize("fault", [AdapterDamaged("another digest"), EngineFailure("a step failed")])
def test_an_engine_that_cannot_serve_the_version_is_our_fault(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, clock: FakeClock, fault: EngineError
) -> None:
    tools.engine.warm_fault = fault
    for _ in range(5):
        run_next()
        clock.advance(60)
    assert state() == ("failed_internal", None)


@pytest.mark.parametrize("fault", [BlobUnavailable("503"), OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "bad")])
def test_a_store_that_does_not_answer_or_is_full_is_waited_for(
    run_next: RunNext,
    sealed: str,
    state: State,
    clock: FakeClock,
    context: PlatformContext,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
) -> None:
    def silent(_key: str, _path: Path) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(context.store, "put_file", silent)
        for _ in range(10):
            assert not run_next()
            clock.advance(60)
    assert run_next()
    assert state() == ("ready", None)


def test_lost_slices_are_our_fault_and_end_as_failed_after_five_attempts(
    run_next: RunNext, sealed: str, state: State, clock: FakeClock, context: PlatformContext
) -> None:
    for entry in list(context.store.entries("uploads/")):
        context.store.delete(entry.key)
    for attempt in range(1, 6):
        assert state() == ("validating", None)
        assert run_next() is (attempt == 5)
        clock.advance(60)
    assert state() == ("failed_internal", None)
    ended = job(context)
    assert (ended.state, ended.attempt, ended.last_error) == ("failed", 5, "BlobMissing")


@pytest.mark.parametrize("moment", ["before the certificate", "after the bytes are stored"])
def test_a_worker_that_is_killed_loses_nothing_and_does_nothing_twice(
    run_next: RunNext,
    sealed: str,
    tools: ScriptedTools,
    state: State,
    clock: FakeClock,
    context: PlatformContext,
    keys: Callable[[str], set[str]],
    moment: str,
) -> None:
    class Killed(BaseException):
        """No handler of ours runs any more."""

    def die(*_: object) -> None:
        raise Killed

    if moment.startswith("before"):
        tools.certifier.step = die
    else:
        tools.engine.warm = die  # type: ignore[method-assign, assignment]
    with pytest.raises(Killed):
        run_next()
    assert (job(context).state, state()) == ("leased", ("validating", None))
    tools.certifier.step = lambda: None
    tools.engine.__dict__.pop("warm", None)
    with context.db.platform.unit_of_work() as work:  # what the next start does
        work.execute(update(Job).values(state="queued", lease_token=None, lease_expires_at=None))
    clock.advance(1)
    assert run_next()
    assert state() == ("ready", None)
    with context.db.platform.read() as work:
        assert len(work.scalars(select(AdapterVersion)).all()) == len(work.scalars(select(Job)).all()) == 1
        assert {upload.state for upload in work.scalars(select(Upload))} == {"consumed"}
    assert (len(keys("images/")), len(keys("files/")), keys("uploads/")) == (1, 2, set())


def test_damaged_bytes_in_the_store_are_made_good_by_the_same_content(
    run_next: RunNext,
    sealed: str,
    tools: ScriptedTools,
    state: State,
    clock: FakeClock,
    context: PlatformContext,
    keys: Callable[[str], set[str]],
    uploader: Uploader,
    files: tuple[bytes, bytes],
) -> None:
    assert run_next()
    stored = keys("images/") | keys("files/")
    whole = {key: context.store.read(key) for key in stored}
    for key in stored:
        path = context.settings.blob_dir / key
        path.chmod(0o600)
        path.write_bytes(b"bit rot")
    linked = context.settings.blob_dir / min(stored)
    linked.unlink()
    linked.symlink_to("/etc/hostname")
    uploader.seal(*files, adapter="again")
    assert run_next()
    assert {key: context.store.read(key) for key in stored} == whole


def test_a_worker_with_another_base_model_than_the_engine_certifies_nothing(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, context: PlatformContext
) -> None:
    tools.certifier.will_say(base_model_digest="c" * 64)
    assert not run_next()
    assert (state(), job(context).last_error) == (("validating", None), "ModelsDiffer")


def test_v22_an_engine_that_answers_otherwise_in_company_is_at_fault_and_not_the_file(
    run_next: RunNext, sealed: str, tools: ScriptedTools, state: State, context: PlatformContext
) -> None:
    tools.engine.disturbs = True
    assert not run_next()
    assert (state(), job(context).last_error) == (("validating", None), "ServedUnlike")
