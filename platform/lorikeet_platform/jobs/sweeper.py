"""Wakes workers for what is due: after a start, and every two seconds. Losing the whole broker loses no work.

A job that a worker was woken for is woken again after 15 seconds; chores run at that pace, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.jobs import queue

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0  # for jobs that have a time of their own: retries, retirements
SWEEP_EVERY_S = 15.0


class Sweeper:
    """A thread that sends messages for due jobs and runs other regular chores.

    Args:
        is_only_worker: nobody else can hold a lease, so those found at the start are broken at once.
        chores: called after each sweep; one that fails holds nothing else up.
    """

    def __init__(
        self,
        db: Database,
        wake: Callable[[str], None],
        *,
        is_only_worker: bool,
        chores: Sequence[Callable[[], object]] = (),
        clock: Clock = now_us,
    ) -> None:
        self._db, self._wake, self._clock = db, wake, clock
        self._is_only_worker, self._chores = is_only_worker, chores
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sweeper", daemon=True)

    def start(self) -> None:
        with self._db.unit_of_work() as work:
            queue.wake_all(work, self._clock(), break_leases=self._is_only_worker)
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """No further round; True when the running one ended within `timeout_s`."""
        self._is_over.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def sweep(self) -> int:
        """One round; returns how many jobs were woken."""
        with self._db.unit_of_work() as work:
            ids = queue.take_due(work, self._clock())
        for job_id in ids:
            self._wake(job_id)
        return len(ids)

    def _loop(self) -> None:
        chores_due_at = 0.0
        while True:
            parts: tuple[Callable[[], object], ...] = (self.sweep,)
            if time.monotonic() >= chores_due_at:
                chores_due_at = time.monotonic() + SWEEP_EVERY_S
                parts = (self.sweep, *self._chores)
            for part in parts:
                if self._is_over.is_set():
                    return
                try:
                    part()
                except Exception:  # whatever it was, jobs must still be woken in the next round
                    log.exception("a part of the sweep failed; it is tried again")
            if self._is_over.wait(LOOK_EVERY_S):
                return
