"""Runs one job: lease, work, and one transaction that holds both the result and the job's end.

A worker that dies leaves a lease that runs out; somebody else leases the job again with the next attempt's number.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.jobs import queue
from lorikeet_platform.jobs.queue import LeasedJob, LeaseLost

log = logging.getLogger(__name__)

LONGEST_ATTEMPT_S = 3_600.0  # what jobs do in child processes and with the engine has limits of its own, below this

Write = Callable[[Session], None]


class WorkerLost(Exception):
    """Every attempt's worker died while it worked on the job."""


class Postponed(Exception):
    """The job cannot be done yet and nothing is wrong with it: tried again without an attempt used up.

    Args:
        why: one word for the job's row, without content.
        delay_us: when to look again; None = later and later, at least once a minute.
    """

    def __init__(self, why: str, delay_us: int | None = None) -> None:
        super().__init__(why)
        self.why, self.delay_us = why, delay_us


class JobHandler(Protocol):
    """The work of one kind of job."""

    def perform(self, job: LeasedJob) -> Write:
        """Do the long part outside any transaction; return what is to be written when it is done.

        Raises:
            Postponed: not yet.
        """

    def give_up(self, work: Session, job: LeasedJob, error: str) -> None:
        """The last attempt failed with an error of that class, and the fault is ours: say so in the job's subject."""

    def clean_up(self, job: LeasedJob) -> None:
        """After the job's end is committed; may be lost in a crash."""


class JobRunner:
    """Handlers by kind, on one database."""

    def __init__(self, db: Database, handlers: Mapping[str, JobHandler], *, clock: Clock = now_us) -> None:
        self._db, self._handlers, self._clock = db, handlers, clock
        self._is_stopping = False

    def stop(self) -> None:
        """What fails from now on fails because its tools are being taken away, and is tried again after a start."""
        self._is_stopping = True

    def run(self, job_id: str) -> bool:
        """Work on the job if it is free; True when this call brought it to its end."""
        with self._db.platform.unit_of_work() as work:
            job = queue.lease(work, job_id, self._clock())
        if job is None:
            return False
        handler = self._handlers[job.kind]
        try:
            if job.is_exhausted:
                raise WorkerLost(job.id)
            with self._heartbeat(job):
                write = handler.perform(job)
            with self._db.tenant(job.tenant_id).unit_of_work() as work:
                queue.finish(work, job, self._clock())
                write(work)
        except LeaseLost:
            log.warning("job %s was taken over by another worker", job.id)
            return False
        except Postponed as postponed:
            self._postpone(job, postponed)
            return False
        except Exception as error:
            if self._is_stopping:
                self._postpone(job, Postponed("WorkerStopped"))
                return False
            log.exception("job %s failed in attempt %d", job.id, job.attempt)
            if not self._record_failure(job, handler, type(error).__name__):
                return False
        handler.clean_up(job)
        return True

    def _record_failure(self, job: LeasedJob, handler: JobHandler, error: str) -> bool:
        """True when it was the last attempt. Only the class's name is kept: texts may hold content."""
        try:
            with self._db.tenant(job.tenant_id).unit_of_work() as work:
                if not job.is_last_attempt:
                    queue.retry_later(work, job, error=error, now=self._clock())
                    return False
                queue.fail(work, job, error=error, now=self._clock())
                handler.give_up(work, job, error)
        except LeaseLost:
            log.warning("job %s was taken over by another worker", job.id)
            return False
        return True

    def _postpone(self, job: LeasedJob, postponed: Postponed) -> None:
        log.info("job %s has to wait: %s", job.id, postponed.why)
        try:
            with self._db.tenant(job.tenant_id).unit_of_work() as work:
                queue.postpone(work, job, why=postponed.why, delay_us=postponed.delay_us, now=self._clock())
        except LeaseLost:
            log.warning("job %s was taken over by another worker", job.id)

    @contextmanager
    def _heartbeat(self, job: LeasedJob) -> Iterator[None]:
        """Extends the lease while the block works, but not for ever: an attempt that hangs is followed by another's."""
        is_over = threading.Event()

        def beat() -> None:
            until = time.monotonic() + LONGEST_ATTEMPT_S
            while not is_over.wait(queue.HEARTBEAT_S) and time.monotonic() < until:
                try:
                    with self._db.tenant(job.tenant_id).unit_of_work() as work:
                        queue.extend(work, job, self._clock())
                except (SQLAlchemyError, LeaseLost):
                    log.warning("the lease of job %s was not extended", job.id)

        thread = threading.Thread(target=beat, name=f"heartbeat-{job.id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
