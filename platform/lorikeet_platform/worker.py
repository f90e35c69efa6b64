"""The worker: one of the platform's composition roots. Celery wakes it, the jobs table tells it what to do.

Inside `lorikeet up` it is a thread of the gateway's process, sharing the in-memory broker; alone it is the same thread
in a process of its own, with a broker between processes.
"""

from __future__ import annotations

import logging
import threading
import time

from celery import Celery
from celery.worker import state as celery_state

from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.clock import now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.jobs.celery_app import MEMORY, TASK, waker
from lorikeet_platform.jobs.runner import JobRunner
from lorikeet_platform.jobs.sweeper import Sweeper
from lorikeet_platform.registry.uploads.leftovers import LeftoverCleaner
from lorikeet_platform.registry.uploads.service import expire_uploads, purge_bytes
from lorikeet_platform.registry.validation import VersionValidator
from lorikeet_platform.settings import Settings

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 4.0  # well within the grace of whoever stops the process: database and engine are closed after us
FLOAT32_BYTES, HALF_BYTES = 4, 2


class Worker:
    """Celery's consumer and the sweeper, each in a thread."""

    def __init__(self, celery: Celery, sweeper: Sweeper, *, concurrency: int) -> None:
        self._sweeper = sweeper
        self._consumer = celery.Worker(
            pool="threads",
            concurrency=concurrency,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        self._thread = threading.Thread(target=self._consume, name="celery-worker", daemon=True)

    def start(self) -> None:
        """Begin with what an earlier process left unfinished."""
        celery_state.should_stop = None
        self._thread.start()
        self._sweeper.start()

    def stop(self) -> None:
        """Finish what runs, within limits; what is cut off is taken up again when its lease has run out."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        celery_state.should_stop = 0
        is_swept = self._sweeper.stop(STOP_TIMEOUT_S)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() or not is_swept:
            log.warning("the worker is still busy and is left behind")

    def _consume(self) -> None:
        try:
            self._consumer.start()
        except SystemExit:
            pass  # how Celery says that it was asked to stop


def build_worker(settings: Settings, *, celery: Celery, db: Database, store: BlobStore, table: ModuleTable) -> Worker:
    """A worker for all kinds of jobs; registers the one task on `celery`."""
    validator = VersionValidator(
        db=db,
        store=store,
        table=table,
        max_rank=settings.max_rank,
        itemsize=FLOAT32_BYTES if settings.engine.dtype == "float32" else HALF_BYTES,
        temporary_dir=settings.temporary_dir,
    )
    runner = JobRunner(db, {"validate": validator})

    def run_job(job_id: str) -> None:
        runner.run(job_id)

    def expire() -> None:
        with db.unit_of_work() as work:
            late = expire_uploads(work, now_us())
        purge_bytes(store, late)

    cleaner = LeftoverCleaner(db=db, store=store, temporary_dir=settings.temporary_dir)
    celery.task(run_job, name=TASK, shared=False, acks_late=True, ignore_result=True)
    sweeper = Sweeper(
        db,
        waker(celery),
        is_only_worker=settings.broker_url.startswith(MEMORY),
        chores=(expire, cleaner.clean_when_due),
    )
    return Worker(celery, sweeper, concurrency=settings.worker_concurrency)
