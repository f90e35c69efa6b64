"""A worker process for tests of the queue: real Celery, sweeper, rounds and leases; its jobs only count that they ran.

    python -m tests.support.job_worker DATABASE_URL BROKER_URL NOTES LEASE_S JOB_S NAME

`begin NAME JOB` and `end NAME JOB` are lines of the file NOTES. The result of a job is one more byte of its version, in
the transaction that ends the job: who commits twice counts twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import update
from sqlalchemy.orm import Session

from lorikeet_platform.clock import SECOND
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.jobs import chores, queue
from lorikeet_platform.jobs.celery_app import TASK, create_celery, waker
from lorikeet_platform.jobs.chores import Chore
from lorikeet_platform.jobs.queue import LeasedJob
from lorikeet_platform.jobs.rounds import ChoreRounds
from lorikeet_platform.jobs.runner import JobRunner, Write
from lorikeet_platform.jobs.sweeper import Sweeper
from lorikeet_platform.settings import Settings
from lorikeet_platform.worker import Worker
from tests.support.worker_tools import ScriptedTools

CHORE = "tests.count"


@dataclass
class CountingHandler:
    notes: Path
    job_s: float
    name: str

    def perform(self, job: LeasedJob) -> Write:
        self.note(f"begin {self.name} {job.id}")
        time.sleep(self.job_s)
        self.note(f"end {self.name} {job.id}")

        def count(work: Session) -> None:
            mine = update(AdapterVersion).where(AdapterVersion.id == job.version_id)
            work.execute(mine.values(bytes=AdapterVersion.bytes + 1), execution_options={"synchronize_session": False})

        return count

    def give_up(self, work: Session, job: LeasedJob, error: str) -> None: ...

    def clean_up(self, job: LeasedJob) -> None: ...

    def note(self, line: str) -> None:
        with self.notes.open("a") as file:
            file.write(line + "\n")


def start(
    database: str, broker: str, notes: Path, name: str, *, lease_s: float = 3, job_s: float = 0
) -> subprocess.Popen[bytes]:
    arguments = [database, broker, str(notes), str(lease_s), str(job_s), name]
    return subprocess.Popen([sys.executable, "-m", "tests.support.job_worker", *arguments])


def main(database: str, broker: str, notes: str, lease_s: str, job_s: str, name: str) -> None:
    queue.LEASE_US = round(float(lease_s) * SECOND)
    queue.HEARTBEAT_S = float(lease_s) / 3
    chores.LEASE_US = queue.LEASE_US  # type: ignore[misc]
    db, celery = Database(database), create_celery(Settings(broker_url=broker))
    handler = CountingHandler(Path(notes), float(job_s), name)
    runner = JobRunner(db, {"validate": handler})

    def run_job(job_id: str) -> None:
        runner.run(job_id)

    def count() -> Mapping[str, str]:
        handler.note(f"chore {name} {time.time()}")
        time.sleep(float(job_s))
        return {"by": name}

    celery.task(run_job, name=TASK, shared=False, acks_late=True, ignore_result=True)
    sweeper = Sweeper(db, waker(celery), is_only_worker=False)
    rounds = ChoreRounds(db, [Chore(CHORE, SECOND, count)])
    worker = Worker(celery, sweeper, rounds, runner, ScriptedTools().for_worker(), concurrency=2)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    worker.start()
    handler.note(f"started {name}")
    stop.wait()
    worker.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
