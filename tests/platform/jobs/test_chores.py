"""Regular work: each chore by one worker at a time, at its time, whoever was stopped or killed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from lorikeet_platform.clock import HOUR, MINUTE, SECOND
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Chore as ChoreRow
from lorikeet_platform.jobs import chores, rounds
from lorikeet_platform.jobs.chores import Chore, HeldChore
from lorikeet_platform.jobs.queue import LeaseLost
from lorikeet_platform.jobs.rounds import ChoreRounds
from tests.support.platform_parts import FakeClock

NAME = "store.reconcile"


def chore(run: Callable[[], object] = lambda: None, *, every_us: int = HOUR, name: str = NAME) -> Chore:
    def counted() -> dict[str, object] | None:
        found = run()
        return None if found is None else {"found": found}

    return Chore(name, every_us, counted)


def add(db: Database, clock: FakeClock, *known: Chore) -> None:
    with db.platform.unit_of_work() as work:
        chores.add_missing(work, known, clock.now)


def take(db: Database, clock: FakeClock, wanted: Chore) -> HeldChore | None:
    with db.platform.unit_of_work() as work:
        return chores.take(work, wanted, clock.now)


def taken(db: Database, clock: FakeClock, wanted: Chore) -> HeldChore:
    held = take(db, clock, wanted)
    assert held is not None
    return held


def row(db: Database, name: str = NAME) -> ChoreRow:
    with db.platform.read() as work:
        return work.get_one(ChoreRow, name)


@contextmanager
def running(worker: ChoreRounds) -> Iterator[ChoreRounds]:
    worker.start()
    try:
        yield worker
    finally:
        assert worker.stop(5)


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_f10_of_many_workers_one_takes_a_chore(database: Database, clock: FakeClock) -> None:
    wanted = chore()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: add(database, clock, wanted), range(8)))
        held = list(pool.map(lambda _: take(database, clock, wanted), range(16)))
    assert sum(one is not None for one in held) == 1


def test_a_chore_is_done_once_in_its_time_whichever_worker_looks(database: Database, clock: FakeClock) -> None:
    wanted = chore()
    add(database, clock, wanted)
    workers = [ChoreRounds(database, [wanted], clock=clock) for _ in range(2)]
    workers[0].do(taken(database, clock, wanted))
    done = row(database)
    assert (done.holder, done.finished_at, done.due_at) == (None, clock.now, clock.now + HOUR)
    clock.advance(3_599)
    add(database, clock, wanted)  # a worker that starts changes nothing
    assert take(database, clock, wanted) is None
    clock.advance(1)
    workers[1].do(taken(database, clock, wanted))
    assert row(database).finished_at == clock.now


def test_a_lease_that_is_extended_is_nobody_else_s(database: Database, clock: FakeClock) -> None:
    wanted = chore()
    add(database, clock, wanted)
    held = taken(database, clock, wanted)
    for _ in range(5):
        clock.advance(59)
        with database.platform.unit_of_work() as work:
            chores.extend(work, held, clock.now)
        assert take(database, clock, wanted) is None
    clock.advance(60)
    assert take(database, clock, wanted) is not None


def test_a_worker_that_lost_its_chore_writes_nothing_over_the_other_s_result(
    database: Database, clock: FakeClock
) -> None:
    wanted = chore(lambda: "slow")
    add(database, clock, wanted)
    slow = taken(database, clock, wanted)
    clock.advance(60)
    other = taken(database, clock, wanted)
    with database.platform.unit_of_work() as work:
        chores.finish(work, other, {"found": "fast"}, clock.now)
    ChoreRounds(database, [wanted], clock=clock).do(slow)
    assert row(database).result == {"found": "fast"}
    for write in (
        chores.put_back,
        partial(chores.extend, now=clock.now),
        partial(chores.fail, error="", now=clock.now),
    ):
        with pytest.raises(LeaseLost), database.platform.unit_of_work() as work:
            write(work, slow)
    assert row(database).error is None


def test_a_chore_that_fails_says_so_keeps_its_last_figures_and_is_tried_before_its_time(
    database: Database, clock: FakeClock
) -> None:
    results: Iterator[object] = iter([7, OSError("no room on /secret/path"), 8])

    def run() -> object:
        found = next(results)
        if isinstance(found, Exception):
            raise found
        return found

    wanted = chore(run)
    add(database, clock, wanted)
    worker = ChoreRounds(database, [wanted], clock=clock)
    worker.do(taken(database, clock, wanted))
    clock.advance(3_600)
    worker.do(taken(database, clock, wanted))
    failed = row(database)
    assert (failed.error, failed.result) == ("OSError", {"found": 7})
    assert failed.due_at == clock.now + 10 * MINUTE
    clock.advance(600)
    worker.do(taken(database, clock, wanted))
    assert (row(database).error, row(database).result) == (None, {"found": 8})


def test_a_chore_that_is_often_due_is_tried_again_at_its_own_pace(database: Database, clock: FakeClock) -> None:
    def fail() -> None:
        raise OSError

    wanted = chore(fail, every_us=5 * SECOND)
    add(database, clock, wanted)
    ChoreRounds(database, [wanted], clock=clock).do(taken(database, clock, wanted))
    assert row(database).due_at == clock.now + 5 * SECOND


def test_a_worker_that_was_killed_holds_a_chore_for_a_minute_and_the_only_worker_s_predecessor_not_at_all(
    db: Database, clock: FakeClock
) -> None:
    wanted = chore()
    add(db, clock, wanted)
    taken(db, clock, wanted)
    with running(ChoreRounds(db, [wanted], clock=clock)) as one_of_many:
        one_of_many.begin_due()
        assert row(db).finished_at is None
    with running(ChoreRounds(db, [wanted], is_only_worker=True, clock=clock)):
        wait_until(lambda: row(db).finished_at is not None)


def test_a_chore_that_takes_long_holds_no_other_up_and_is_not_begun_twice(db: Database, clock: FakeClock) -> None:
    begun, may_end, done = [], threading.Event(), threading.Event()

    def take_long() -> None:
        begun.append(1)
        assert may_end.wait(10)

    known = [chore(take_long, name="long", every_us=0), chore(done.set, name="short")]
    worker = ChoreRounds(db, known, clock=clock)
    worker.start()
    assert done.wait(5)
    clock.advance(61)  # nobody extended the lease; this worker knows what it has
    worker.begin_due()
    assert not worker.stop(0.05)
    may_end.set()
    assert worker.stop(5)
    assert begun == [1]


def test_leases_are_extended_while_chores_run(db: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(rounds, "EXTEND_EVERY_S", 0.01)
    may_end = threading.Event()
    with running(ChoreRounds(db, [chore(lambda: may_end.wait(10))], clock=clock)):
        wait_until(lambda: row(db).holder)
        clock.advance(30)
        wait_until(lambda: row(db).lease_expires_at == clock.now + chores.LEASE_US)
        may_end.set()


def test_what_fails_while_its_worker_stops_is_due_as_before(db: Database, clock: FakeClock) -> None:
    begun, closed = threading.Event(), threading.Event()

    def lose_tools() -> None:
        begun.set()
        assert closed.wait(10)
        raise OSError("the engine's link is closed")

    worker = ChoreRounds(db, [chore(lose_tools)], clock=clock)
    worker.start()
    assert begun.wait(5)
    assert not worker.stop(0)
    closed.set()
    assert worker.stop(5)
    left = row(db)
    assert (left.holder, left.error, left.due_at) == (None, None, clock.now)


def test_a_look_that_fails_is_followed_by_the_next(
    db: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LOOK_EVERY_S", 0.01)
    worker = ChoreRounds(db, [], clock=clock)
    looks: list[int] = []

    def fail() -> None:
        looks.append(1)
        raise OSError

    monkeypatch.setattr(worker, "begin_due", fail)
    with running(worker):
        wait_until(lambda: len(looks) >= 3)


def test_a_chore_that_hangs_loses_its_lease_after_an_hour_and_says_so(db: Database, clock: FakeClock) -> None:
    may_end = threading.Event()
    hangs, fast = chore(lambda: may_end.wait(10)), chore(name="fast", every_us=MINUTE)
    worker = ChoreRounds(db, [hangs, fast], clock=clock)
    add(db, clock, hangs, fast)
    worker.begin_due()
    wait_until(lambda: row(db, "fast").finished_at is not None)
    for _ in range(59):
        clock.advance(60)
        worker.extend_running()
        assert row(db).holder is not None
    clock.advance(60)
    worker.extend_running()
    assert (row(db).holder, row(db).error) == (None, rounds.HANGS)
    clock.advance(10 * 60)
    worker.begin_due()  # not here, where its thread still is
    assert row(db).holder is None
    other = taken(db, clock, hangs)
    may_end.set()
    wait_until(lambda: not worker._all_running())
    assert row(db).holder == other.token


def test_one_lease_that_cannot_be_extended_keeps_no_other_from_it(
    db: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    known = [chore(lambda: may_end.wait(10), name=name) for name in ("first", "second")]
    worker = ChoreRounds(db, known, clock=clock)
    add(db, clock, *known)
    worker.begin_due()
    extended: list[str] = []
    extend = chores.extend

    def lose_the_first(work: Session, held: HeldChore, now: int) -> None:
        if not extended:
            extended.append("failed")
            raise OperationalError("", {}, Exception())
        extended.append(held.chore.name)
        extend(work, held, now)

    monkeypatch.setattr(chores, "extend", lose_the_first)
    worker.extend_running()
    assert extended == ["failed", "second"]
    may_end.set()
    wait_until(lambda: not worker._all_running())
