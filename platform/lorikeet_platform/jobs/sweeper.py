"""Wakes workers for what is due: after a start, and every two seconds. Losing the whole broker loses no work.

A job that a worker was woken for is woken again after 15 seconds. Every worker sweeps: a row that one has taken is
passed over by the others, so that two send no message twice and the loss of one delays nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.jobs import queue

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0  # for jobs that have a time of their own: retries, retirements
TIDY_EVERY_S = 600.0


class Sweeper:
    """Two threads: one sends messages for due jobs, the other keeps this worker's own place tidy.

    Args:
        is_only_worker: nobody else can hold a lease, so those found at the start are broken at once.
        tidy: what each worker does for itself, at its start and every ten minutes.
    """

    def __init__(
        self,
        db: Database,
        wake: Callable[[str], None],
        *,
        is_only_worker: bool,
        tidy: Callable[[], object] = lambda: None,
        clock: Clock = now_us,
    ) -> None:
        self._db, self._wake, self._clock = db, wake, clock
        self._is_only_worker, self._tidy = is_only_worker, tidy
        self._is_over = threading.Event()
        self._threads = (
            threading.Thread(target=self._look, name="sweeper", daemon=True),
            threading.Thread(target=self._tidy_up, name="tidying", daemon=True),
        )

    def start(self) -> None:
        with self._db.platform.unit_of_work() as work:
            queue.wake_all(work, self._clock(), break_leases=self._is_only_worker)
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """No further round; True when the running ones ended within `timeout_s`."""
        self._is_over.set()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def sweep(self) -> int:
        """One round; returns how many jobs were woken."""
        with self._db.platform.unit_of_work() as work:
            ids = queue.take_due(work, self._clock())
        for job_id in ids:
            self._wake(job_id)
        return len(ids)

    def _look(self) -> None:
        while not self._is_over.is_set():
            self._try(self.sweep)
            self._is_over.wait(LOOK_EVERY_S)

    def _tidy_up(self) -> None:
        while not self._is_over.is_set():
            self._try(self._tidy)
            self._is_over.wait(TIDY_EVERY_S)

    def _try(self, part: Callable[[], object]) -> None:
        try:
            part()
        except Exception:  # whatever it was, the next round comes
            log.exception("a part of the sweep failed; it is tried again")
