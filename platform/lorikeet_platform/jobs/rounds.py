"""Does the chores that are due, each in a thread of its own: one that takes minutes holds no other up.

One loop looks for what is due and extends the leases of what runs; a chore that fails is tried again later, and says
so in its row. One that hangs says so, too: after an hour its lease is given up, and another worker may try. Here it is
not begun again as long as its thread is there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from lorikeet_platform.clock import HOUR, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.jobs import chores
from lorikeet_platform.jobs.chores import Chore, HeldChore
from lorikeet_platform.jobs.queue import LeaseLost

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
EXTEND_EVERY_S: Final = 15.0
LONGEST_US: Final = 1 * HOUR
HANGS: Final = "TakesTooLong"


@dataclass(slots=True)
class _Running:
    """A chore that this worker began.

    Attributes:
        is_held: its lease is still extended.
    """

    held: HeldChore
    thread: threading.Thread
    began_at: int
    is_held: bool = True


class ChoreRounds:
    """One worker's part in the chores of the installation.

    Args:
        is_only_worker: nobody else can hold a lease, so those found at the start are broken at once.
    """

    def __init__(
        self, db: Database, known: Sequence[Chore], *, is_only_worker: bool = False, clock: Clock = now_us
    ) -> None:
        self._db, self._known, self._clock = db, known, clock
        self._is_only_worker = is_only_worker
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._thread = threading.Thread(target=self._look, name="chores", daemon=True)

    def start(self) -> None:
        with self._db.platform.unit_of_work() as work:
            chores.add_missing(work, self._known, self._clock())
            if self._is_only_worker:
                chores.break_leases(work)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """No further chore; True when the running ones ended within `timeout_s`. The leases of the rest run out."""
        self._is_over.set()
        deadline = time.monotonic() + timeout_s
        for thread in (self._thread, *(each.thread for each in self._all_running())):
            thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive() and not self._all_running()

    def begin_due(self) -> None:
        """Take what is due and free, and begin it."""
        now = self._clock()
        with self._db.platform.read() as work:
            names = chores.due(work, now)
        running = {each.held.chore.name for each in self._all_running()}
        for chore in self._known:
            if chore.name not in names or chore.name in running or self._is_over.is_set():
                continue
            with self._db.platform.unit_of_work() as work:
                held = chores.take(work, chore, now)
            if held is not None:
                self._begin(held)

    def extend_running(self) -> None:
        """What cannot be said about one chore keeps no other from being extended."""
        for each in self._all_running():
            name = each.held.chore.name
            if not each.is_held:
                continue
            try:
                self._extend_or_give_up(each)
            except LeaseLost:
                log.warning("the chore %s was taken over by another worker, or has just ended", name)
            except SQLAlchemyError as failure:
                log.warning("the lease of the chore %s was not extended: %s", name, type(failure).__name__)

    def _extend_or_give_up(self, running: _Running) -> None:
        now = self._clock()
        with self._db.platform.unit_of_work() as work:
            if now - running.began_at < LONGEST_US:
                chores.extend(work, running.held, now)
                return
            chores.fail(work, running.held, HANGS, now)
        running.is_held = False
        log.error("the chore %s takes too long; its lease is given up", running.held.chore.name)

    def do(self, held: HeldChore) -> None:
        """The chore from its beginning to its row."""
        try:
            write = self._end_of(held)
            with self._db.platform.unit_of_work() as work:
                write(work)
        except LeaseLost:
            log.warning("the chore %s was taken over by another worker", held.chore.name)
        except SQLAlchemyError as failure:
            log.warning("how the chore %s ended is not written down: %s", held.chore.name, type(failure).__name__)

    def _end_of(self, held: HeldChore) -> Callable[[Session], None]:
        """Run it; what is to be written in its row then."""
        try:
            result = held.chore.run()
        except Exception as failure:  # whatever it was, the chore's time comes again
            if self._is_over.is_set():  # what it works with is being taken away
                return lambda work: chores.put_back(work, held)
            log.exception("the chore %s failed", held.chore.name)
            error = type(failure).__name__
            return lambda work: chores.fail(work, held, error, self._clock())
        return lambda work: chores.finish(work, held, result, self._clock())

    def _begin(self, held: HeldChore) -> None:
        def run() -> None:
            try:
                self.do(held)
            finally:
                with self._lock:
                    del self._running[held.chore.name]

        thread = threading.Thread(target=run, name=f"chore-{held.chore.name}", daemon=True)
        with self._lock:
            self._running[held.chore.name] = _Running(held, thread, self._clock())
        thread.start()

    def _all_running(self) -> list[_Running]:
        with self._lock:
            return list(self._running.values())

    def _look(self) -> None:
        extend_at = time.monotonic() + EXTEND_EVERY_S
        while not self._is_over.is_set():
            try:
                self.begin_due()
                if time.monotonic() >= extend_at:
                    extend_at = time.monotonic() + EXTEND_EVERY_S
                    self.extend_running()
            except Exception:  # such as a database that does not answer: the next look comes
                log.exception("chores were not looked at")
            self._is_over.wait(LOOK_EVERY_S)
