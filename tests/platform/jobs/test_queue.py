"""The jobs table is the truth: leases, fencing, retries, and the sweeper that wakes what a broker lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Job
from lorikeet_platform.jobs import queue
from lorikeet_platform.jobs.queue import LeasedJob, LeaseLost
from lorikeet_platform.jobs.runner import JobRunner, Postponed, Write
from lorikeet_platform.jobs.sweeper import Sweeper
from tests.support.platform_parts import FakeClock, Tenant, a_tenant, a_version, make_context


@dataclass
class ScriptedHandler:
    """Remembers calls; `step` runs inside `perform`."""

    step: Callable[[], None] = lambda: None
    write: Write | None = None
    calls: list[str] = field(default_factory=list)

    def perform(self, job: LeasedJob) -> Write:
        self.calls.append(f"perform {job.attempt}")
        self.step()
        return self.write or (lambda _work: self.calls.append("write"))

    def give_up(self, _work: Session, _job: LeasedJob, _error: str) -> None:
        self.calls.append("give up")

    def clean_up(self, _job: LeasedJob) -> None:
        self.calls.append("clean up")


@pytest.fixture
def job_id(context: PlatformContext, harbour: Tenant) -> str:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate", state="validating")
        return enqueued(work, version, context.clock()).id


def enqueued(work: Session, version: AdapterVersion, now: int, *, run_after: int | None = None) -> Job:
    return queue.enqueue(
        work, tenant_id=version.tenant_id, kind="validate", version_id=version.id, now=now, run_after=run_after
    )


@pytest.fixture
def handler() -> ScriptedHandler:
    return ScriptedHandler()


@pytest.fixture
def runner(context: PlatformContext, handler: ScriptedHandler, clock: FakeClock) -> JobRunner:
    return JobRunner(context.db, {"validate": handler}, clock=clock)


def row(context: PlatformContext, tenant: Tenant, job_id: str) -> Job:
    with context.db.platform.read() as work:
        return work.get_one(Job, (tenant.id, job_id))


def test_an_unfinished_job_of_the_same_kind_and_version_is_that_job(
    context: PlatformContext, harbour: Tenant, runner: JobRunner, clock: FakeClock
) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate", state="validating")
        first, again = (enqueued(work, version, clock.now) for _ in range(2))
        assert first.id == again.id
    assert lease(context, first.id) is not None
    with context.db.platform.unit_of_work() as work:
        assert enqueued(work, version, clock.now).id == first.id  # somebody works on it
    clock.advance(46)
    assert runner.run(first.id)
    with context.db.platform.unit_of_work() as work:
        assert enqueued(work, version, clock.now).id != first.id


def test_a_job_with_a_time_of_its_own_is_not_taken_before_it(
    context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate", state="validating")
        job = enqueued(work, version, clock.now, run_after=clock.now + 2_000_000)
    assert lease(context, job.id) is None
    clock.advance(1.9)
    sweeper = Sweeper(context.db, lambda _job_id: None, is_only_worker=False, clock=clock)
    assert (sweeper.sweep(), lease(context, job.id)) == (0, None)
    clock.advance(0.1)
    assert sweeper.sweep() == 1
    assert lease(context, job.id) is not None


def lease(context: PlatformContext, job_id: str) -> LeasedJob | None:
    with context.db.platform.unit_of_work() as work:
        return queue.lease(work, job_id, context.clock())


def test_a_job_runs_once_however_many_messages_arrive(
    runner: JobRunner, handler: ScriptedHandler, job_id: str, context: PlatformContext, harbour: Tenant
) -> None:
    assert [runner.run(job_id) for _ in range(3)] == [True, False, False]
    assert handler.calls == ["perform 1", "write", "clean up"]
    assert row(context, harbour, job_id).state == "done"


def test_a_message_for_a_job_that_never_was_does_nothing(runner: JobRunner, handler: ScriptedHandler) -> None:
    assert not runner.run("job_unknown")
    assert handler.calls == []


def test_a_leased_job_is_free_again_when_its_worker_died(
    context: PlatformContext, job_id: str, clock: FakeClock
) -> None:
    first = lease(context, job_id)
    assert first is not None
    assert lease(context, job_id) is None
    clock.advance(46)
    second = lease(context, job_id)
    assert second is not None
    assert (first.attempt, second.attempt) == (1, 2)


def test_a_worker_that_lost_its_lease_cannot_write(
    runner: JobRunner,
    handler: ScriptedHandler,
    context: PlatformContext,
    job_id: str,
    clock: FakeClock,
    harbour: Tenant,
) -> None:
    def sleep_too_long() -> None:
        clock.advance(46)
        assert lease(context, job_id) is not None

    handler.step = sleep_too_long
    assert not runner.run(job_id)
    assert handler.calls == ["perform 1"]
    assert row(context, harbour, job_id).state == "leased"


def test_a_lease_is_extended_by_its_holder_only(context: PlatformContext, job_id: str, clock: FakeClock) -> None:
    first = lease(context, job_id)
    assert first is not None
    clock.advance(44)
    with context.db.platform.unit_of_work() as work:
        queue.extend(work, first, clock.now)
    clock.advance(44)
    assert lease(context, job_id) is None
    clock.advance(2)
    assert lease(context, job_id) is not None
    with context.db.platform.unit_of_work() as work, pytest.raises(LeaseLost):
        queue.extend(work, first, clock.now)


@pytest.mark.parametrize(("longest_s", "is_extended"), [(60.0, True), (0.0, False)])
def test_a_lease_is_extended_while_its_worker_works_but_not_for_ever(
    runner: JobRunner,
    handler: ScriptedHandler,
    context: PlatformContext,
    job_id: str,
    clock: FakeClock,
    harbour: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    longest_s: float,
    is_extended: bool,
) -> None:
    monkeypatch.setattr(queue, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr("lorikeet_platform.jobs.runner.LONGEST_ATTEMPT_S", longest_s)
    began_at = clock.now

    def work() -> None:
        clock.advance(30)
        time.sleep(0.2)
        expires_at = row(context, harbour, job_id).lease_expires_at
        assert expires_at == (clock.now if is_extended else began_at) + queue.LEASE_US

    handler.step = work
    assert runner.run(job_id)
    assert row(context, harbour, job_id).attempt == 1
    assert row(context, harbour, job_id).last_error is None


def test_a_failure_is_tried_again_later_and_keeps_no_text(
    runner: JobRunner,
    handler: ScriptedHandler,
    context: PlatformContext,
    job_id: str,
    clock: FakeClock,
    harbour: Tenant,
) -> None:
    def fail() -> None:
        raise RuntimeError("content of a file")

    handler.step = fail
    assert not runner.run(job_id)
    failed = row(context, harbour, job_id)
    assert (failed.state, failed.last_error) == ("queued", "RuntimeError")
    assert not runner.run(job_id)
    handler.step = lambda: None
    clock.advance(3)
    assert runner.run(job_id)
    assert handler.calls == ["perform 1", "perform 2", "write", "clean up"]


def test_a_job_that_has_to_wait_uses_up_no_attempt_and_waits_for_longer_each_time(
    runner: JobRunner,
    handler: ScriptedHandler,
    context: PlatformContext,
    job_id: str,
    clock: FakeClock,
    harbour: Tenant,
) -> None:
    def wait() -> None:
        raise Postponed("WaitsForEngine")

    handler.step = wait
    waits = []
    for _ in range(25):
        assert not runner.run(job_id)
        waiting = row(context, harbour, job_id)
        assert (waiting.state, waiting.attempt, waiting.last_error) == ("queued", 0, "WaitsForEngine")
        waits.append((waiting.run_after - clock.now) / 1_000_000)
        clock.advance(waits[-1])
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2, 60)
    handler.step = lambda: None
    assert runner.run(job_id)


def test_a_handler_is_told_what_went_wrong_before(
    runner: JobRunner, handler: ScriptedHandler, context: PlatformContext, job_id: str, clock: FakeClock
) -> None:
    failures = iter([RuntimeError(), Postponed("WaitsForEngine"), OSError(), RuntimeError()])

    def fail() -> None:
        raise next(failures)

    handler.step = fail
    for _ in range(4):
        assert not runner.run(job_id)
        clock.advance(60)
    job = lease(context, job_id)
    assert job is not None
    assert (job.attempt, job.errors) == (4, ("WaitsForEngine", "OSError", "RuntimeError"))


def test_what_fails_while_its_worker_stops_is_no_failed_attempt(
    runner: JobRunner,
    handler: ScriptedHandler,
    context: PlatformContext,
    job_id: str,
    clock: FakeClock,
    harbour: Tenant,
) -> None:
    def lose_tools() -> None:
        runner.stop()
        raise OSError("the child process is gone")

    handler.step = lose_tools
    assert not runner.run(job_id)
    waiting = row(context, harbour, job_id)
    assert (waiting.state, waiting.attempt) == ("queued", 0)
    clock.advance(2)
    handler.step = lambda: None
    assert JobRunner(context.db, {"validate": handler}, clock=clock).run(job_id)


def test_a_write_that_finds_itself_overtaken_keeps_nothing(
    context: PlatformContext, job_id: str, clock: FakeClock, harbour: Tenant, handler: ScriptedHandler
) -> None:
    def write(work: Session) -> None:
        work.get_one(Job, (harbour.id, job_id)).max_attempts = 99
        raise Postponed("StateMoved", 0)

    handler.write = write
    assert not JobRunner(context.db, {"validate": handler}, clock=clock).run(job_id)
    waiting = row(context, harbour, job_id)
    assert (waiting.state, waiting.max_attempts, waiting.run_after) == ("queued", 5, clock.now)


def test_a_job_that_kills_its_workers_is_given_up(
    runner: JobRunner,
    handler: ScriptedHandler,
    context: PlatformContext,
    job_id: str,
    clock: FakeClock,
    harbour: Tenant,
) -> None:
    for _ in range(5):
        assert lease(context, job_id) is not None
        clock.advance(46)
    assert runner.run(job_id)
    assert handler.calls == ["give up", "clean up"]
    assert row(context, harbour, job_id).state == "failed"


def test_the_sweeper_wakes_what_is_due_and_not_at_every_round(
    context: PlatformContext, job_id: str, clock: FakeClock
) -> None:
    woken: list[str] = []
    sweeper = Sweeper(context.db, woken.append, is_only_worker=False, clock=clock)
    assert sweeper.sweep() == 0  # the sealing request woke a worker just now
    clock.advance(16)
    assert (sweeper.sweep(), sweeper.sweep()) == (1, 0)
    clock.advance(16)
    assert sweeper.sweep() == 1
    assert woken == [job_id, job_id]
    assert lease(context, job_id) is not None
    clock.advance(16)
    assert sweeper.sweep() == 0  # somebody works on it
    clock.advance(46)
    assert sweeper.sweep() == 1


def test_f10_sweepers_that_look_at_once_send_no_message_twice(
    database: Database, tmp_path: Path, clock: FakeClock
) -> None:
    context = make_context(tmp_path, database, clock)
    tenant = a_tenant(context, "harbour")
    with database.platform.unit_of_work() as work:
        for number in range(60):
            version = a_version(work, tenant, name=f"a{number}", state="validating")
            enqueued(work, version, clock.now, run_after=clock.now)
    woken: list[str] = []
    sweepers = [Sweeper(database, woken.append, is_only_worker=False, clock=clock) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(Sweeper.sweep, sweepers))
    while n_woken := sweepers[0].sweep():  # what none of them saw, because another was at it
        counts.append(n_woken)
    assert sum(counts) == len(woken) == len(set(woken)) == 60


@pytest.mark.parametrize(("is_only_worker", "n_woken"), [(True, 1), (False, 0)])
def test_after_a_start_the_only_worker_takes_up_what_its_predecessor_held(
    context: PlatformContext, job_id: str, clock: FakeClock, is_only_worker: bool, n_woken: int
) -> None:
    assert lease(context, job_id) is not None
    with context.db.platform.unit_of_work() as work:
        queue.wake_all(work, clock.now, break_leases=is_only_worker)
    assert Sweeper(context.db, lambda _job_id: None, is_only_worker=is_only_worker, clock=clock).sweep() == n_woken


def test_after_a_start_waiting_jobs_are_woken_at_once(context: PlatformContext, job_id: str) -> None:
    woken: list[str] = []
    rounds = threading.Event()
    sweeper = Sweeper(context.db, woken.append, is_only_worker=True, tidy=rounds.set)
    sweeper.start()
    assert rounds.wait(5)
    assert sweeper.stop(5)
    assert woken == [job_id]


def test_a_part_of_the_sweep_that_fails_ends_neither_the_other_nor_the_next_round(
    context: PlatformContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lorikeet_platform.jobs.sweeper.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("lorikeet_platform.jobs.sweeper.TIDY_EVERY_S", 0.01)
    calls: list[str] = []
    both_thrice = threading.Event()

    def fail(name: str) -> Callable[[], None]:
        def part() -> None:
            calls.append(name)
            if min(calls.count("sweep"), calls.count("tidy")) >= 3:
                both_thrice.set()
            raise OSError(28, "no room")

        return part

    sweeper = Sweeper(context.db, lambda _job_id: None, is_only_worker=False, tidy=fail("tidy"))
    monkeypatch.setattr(sweeper, "sweep", fail("sweep"))
    sweeper.start()
    assert both_thrice.wait(5)
    assert sweeper.stop(5)
