"""The worker: one of the platform's composition roots. Celery wakes it, the jobs table tells it what to do.

Inside `lorikeet up` it is a thread of the gateway's process, sharing the in-memory broker; alone it is the same thread
in a process of its own, with a broker between processes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from celery import Celery
from celery.worker import state as celery_state

from lorikeet_adapters.sandbox.confinement.limits import JailLimits
from lorikeet_adapters.sandbox.validating import validate_in_jail
from lorikeet_adapters.store.blob import BlobStore
from lorikeet_engine.certification.process import Certifier
from lorikeet_engine.client import EngineClient
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_platform.clock import HOUR, MINUTE, SECOND, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.engine_link import EngineLink
from lorikeet_platform.fleet import forget_dead
from lorikeet_platform.jobs.celery_app import MEMORY, TASK, Waker, waker
from lorikeet_platform.jobs.chores import Chore
from lorikeet_platform.jobs.rounds import ChoreRounds
from lorikeet_platform.jobs.runner import JobHandler, JobRunner
from lorikeet_platform.jobs.sweeper import Sweeper
from lorikeet_platform.registry.uploads.leftovers import LeftoverCleaner, TemporaryFiles
from lorikeet_platform.registry.uploads.service import expire_uploads, purge_bytes
from lorikeet_platform.registry.work.guard import AliasGuards
from lorikeet_platform.registry.work.purging import PurgeChore, VersionPurger
from lorikeet_platform.registry.work.reconciliation import Reconciler
from lorikeet_platform.registry.work.retirement import VersionRetirer
from lorikeet_platform.registry.work.tools import Engine, WorkerTools
from lorikeet_platform.registry.work.validating.job import VersionValidator
from lorikeet_platform.settings import Settings
from lorikeet_platform.usage.work import check, outbox, reaper, rollups

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 4.0  # well within the grace of whoever stops the process: database and engine are closed after us
# Then the jobs' tools are taken away: what still runs ends at once, and is taken up again after the next start.
SHORT_JOB_S = 1.0
DAY = 24 * HOUR


class Worker:
    """Celery's consumer, the sweeper and the rounds of chores, each in threads of its own."""

    def __init__(
        self,
        celery: Celery,
        sweeper: Sweeper,
        rounds: ChoreRounds,
        runner: JobRunner,
        tools: WorkerTools,
        *,
        concurrency: int,
    ) -> None:
        self._sweeper, self._rounds, self._runner, self._tools = sweeper, rounds, runner, tools
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
        self._rounds.start()

    def stop(self) -> None:
        """Finish what runs, within limits; what is cut off is taken up again after the next start."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        self._runner.stop()
        celery_state.should_stop = 0
        self._rounds.stop(SHORT_JOB_S)
        self._thread.join(min(SHORT_JOB_S, STOP_TIMEOUT_S))
        self._tools.close()
        is_swept = self._sweeper.stop(max(0.0, deadline - time.monotonic()))
        is_round_over = self._rounds.stop(max(0.0, deadline - time.monotonic()))
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() or not is_swept or not is_round_over:
            log.warning("the worker is still busy and is left behind")

    def _consume(self) -> None:
        try:
            self._consumer.start()
        except SystemExit:
            pass  # how Celery says that it was asked to stop


def build_worker(settings: Settings, *, celery: Celery, db: Database, store: BlobStore, tools: WorkerTools) -> Worker:
    """A worker for all kinds of jobs; registers the one task on `celery`."""
    runner = JobRunner(db, _handlers(settings, db, store, tools))

    def run_job(job_id: str) -> None:
        runner.run(job_id)

    celery.task(run_job, name=TASK, shared=False, acks_late=True, ignore_result=True)
    is_only_worker, wake = settings.broker_url.startswith(MEMORY), waker(celery)
    sweeper = Sweeper(
        db,
        wake,
        is_only_worker=is_only_worker,
        tidy=TemporaryFiles(db=db, folder=settings.temporary_dir).remove_old,
    )
    chores = _chores(settings, db, store, tools.engine, wake)
    rounds = ChoreRounds(db, chores, is_only_worker=is_only_worker)
    return Worker(celery, sweeper, rounds, runner, tools, concurrency=settings.worker_concurrency)


def make_tools(settings: Settings, *, model_dir: Path) -> WorkerTools:
    """The jail, the certifier and the link to the engine; nothing is started before the first job needs it."""
    limits = settings.validation
    jail = partial(
        validate_in_jail,
        table=load_model_spec(model_dir).module_table(settings.model_name),
        max_rank=settings.max_rank,
        limits=JailLimits(memory_bytes=limits.jail_memory_bytes, cpu_s=limits.jail_cpu_s, wall_s=limits.jail_wall_s),
    )
    certifier = Certifier(
        model_dir=model_dir,
        base_model_name=settings.model_name,
        max_rank=settings.max_rank,
        memory_bytes=limits.certificate_memory_bytes,
    )

    def connect() -> EngineClient:
        return EngineClient(endpoint=settings.engine_endpoint, model_dir=model_dir, key_file=settings.engine_key_file)

    return WorkerTools(jail=jail, certifier=certifier, engine=EngineLink(connect))


def _handlers(settings: Settings, db: Database, store: BlobStore, tools: WorkerTools) -> Mapping[str, JobHandler]:
    return {
        "validate": VersionValidator(
            db=db,
            store=store,
            tools=tools,
            base_model=settings.model_name,
            temporary_dir=settings.temporary_dir,
            keep_rejected_us=settings.retention.rejected_days * DAY,
        ),
        "retire": VersionRetirer(db=db, engine=tools.engine),
        "purge": VersionPurger(db=db, store=store),
    }


def _chores(settings: Settings, db: Database, store: BlobStore, engine: Engine, wake: Waker) -> Sequence[Chore]:
    """The regular work of the installation, each by whichever worker comes first."""

    def expire_old_uploads() -> Mapping[str, int]:
        with db.platform.unit_of_work() as work:
            late = expire_uploads(work, now_us())
        purge_bytes(store, late)
        return {"uploads": len(late)}

    def forget_dead_gateways() -> Mapping[str, int]:
        with db.platform.unit_of_work() as work:
            return {"gateways": forget_dead(work, now_us())}

    reconciler = Reconciler(db=db, store=store, temporary_dir=settings.temporary_dir, wake=wake)
    return (
        Chore("uploads.expire", 15 * SECOND, expire_old_uploads),
        Chore("uploads.leftovers", 10 * MINUTE, LeftoverCleaner(db=db, store=store).clean),
        Chore("versions.purge", 15 * SECOND, PurgeChore(db=db).enqueue_due),
        Chore("aliases.guard", 15 * SECOND, AliasGuards(db=db).judge_all),
        Chore("store.reconcile", DAY, reconciler.reconcile),
        Chore(outbox.NAME, 5 * SECOND, outbox.OutboxDrain(db, engine).run),
        Chore(reaper.NAME, 15 * SECOND, reaper.Reaper(db, engine).run),
        Chore(rollups.NAME, 10 * SECOND, rollups.RollUps(db).run),
        Chore(check.NAME, HOUR, check.LedgerCheck(db).run),
        Chore("gateways.forget", 10 * MINUTE, forget_dead_gateways),
    )
