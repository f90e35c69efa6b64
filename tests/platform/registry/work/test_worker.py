"""A worker as it runs: a message wakes it, jobs run in its threads, and it ends in time whatever they do."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from celery import Celery
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.clock import now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, Job
from lorikeet_platform.jobs.celery_app import create_celery, waker
from lorikeet_platform.worker import Worker, build_worker
from tests.support.platform_parts import Tenant, Uploader
from tests.support.worker_tools import ScriptedTools, job_runner

pytestmark = pytest.mark.slow


@pytest.fixture
def celery(context: PlatformContext) -> Celery:
    """With the in-memory broker, as in `lorikeet up`."""
    return create_celery(context.settings)


@pytest.fixture
def worker(context: PlatformContext, celery: Celery, tools: ScriptedTools) -> Iterator[Worker]:
    worker = build_worker(context.settings, celery=celery, db=context.db, store=context.store, tools=tools.for_worker())
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def working(context: PlatformContext, celery: Celery, worker: Worker, harbour: Tenant) -> Iterator[Uploader]:
    """The tenant API beside a worker."""
    with TestClient(create_tenant_app(replace(context, wake=waker(celery)))) as client:
        yield Uploader(client, harbour)


def awaited(uploader: Uploader, number: int, *, state: str, within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    path = f"/v1/adapters/pirate/versions/{number}?wait=5"
    while uploader.client.get(path, headers=uploader.tenant.auth).json()["state"] != state:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_upload_becomes_ready_or_rejected_by_a_worker_that_a_message_woke(
    working: Uploader, files: tuple[bytes, bytes], context: PlatformContext
) -> None:
    started_at = time.monotonic()
    working.seal(*files)
    working.seal(files[0], pickle.dumps({"lora_A": [0.0] * 64}))
    awaited(working, 1, state="ready")
    awaited(working, 2, state="rejected")
    assert time.monotonic() - started_at < 12  # a message woke it, not the sweeper's next round
    with context.db.platform.read() as work:
        assert work.scalars(select(AdapterVersion.state).order_by(AdapterVersion.number)).all() == ["ready", "rejected"]


def test_a_version_leaves_service_without_a_message(
    working: Uploader, files: tuple[bytes, bytes], tools: ScriptedTools
) -> None:
    working.seal(*files)
    awaited(working, 1, state="ready")
    address = "/v1/adapters/pirate"
    assert working.client.delete(f"{address}/aliases/live", headers=working.tenant.auth).status_code < 300
    assert working.client.delete(f"{address}/versions/1", headers=working.tenant.auth).status_code < 300
    awaited(working, 1, state="purged")
    assert [force for *_, force in tools.engine.named("retire")] == [False]


def test_a_stopped_worker_puts_its_job_back_without_an_attempt_and_the_next_one_ends_it(
    context: PlatformContext, tools: ScriptedTools, working: Uploader, worker: Worker, files: tuple[bytes, bytes]
) -> None:
    begun, closed = threading.Event(), threading.Event()

    def measure_for_long() -> None:
        begun.set()
        assert closed.wait(10)
        raise OSError("the certifier was closed")

    tools.certifier.step = measure_for_long
    tools.certifier.close = closed.set  # type: ignore[method-assign]
    working.seal(*files)
    assert begun.wait(10)
    started_at = time.monotonic()
    worker.stop()
    assert time.monotonic() - started_at < 4
    with context.db.platform.read() as work:
        job = work.scalars(select(Job)).one()
    assert (job.state, job.attempt, job.last_error) == ("queued", 0, "WorkerStopped")
    again = ScriptedTools()
    celery = create_celery(context.settings)
    successor = build_worker(
        context.settings, celery=celery, db=context.db, store=context.store, tools=again.for_worker()
    )
    successor.start()
    try:
        awaited(working, 1, state="ready")
    finally:
        successor.stop()
    assert (again.certifier.is_closed, again.engine.is_closed) == (True, True)


def test_a_worker_that_is_busy_is_left_behind_in_time(
    context: PlatformContext, working: Uploader, worker: Worker, files: tuple[bytes, bytes], tools: ScriptedTools
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work_for_long() -> None:
        begun.set()
        may_end.wait(30)
        raise RuntimeError

    tools.certifier.step = work_for_long
    working.seal(*files)
    assert begun.wait(10)
    started_at = time.monotonic()
    worker.stop()
    elapsed_s = time.monotonic() - started_at
    may_end.set()
    assert elapsed_s < 6


def test_a_worker_that_died_is_followed_by_one_that_takes_its_job_at_once(
    context: PlatformContext, uploader: Uploader, files: tuple[bytes, bytes], tools: ScriptedTools
) -> None:
    uploader.seal(*files)
    with context.db.platform.read() as work:
        job_id = work.scalars(select(Job.id)).one()
    died = threading.Event()

    class Died(BaseException):
        """As SIGKILL would end it: nothing of ours runs any more."""

    def die() -> None:
        died.set()
        raise Died

    tools.certifier.step = die
    with pytest.raises(Died):
        job_runner(replace(context, clock=now_us), tools).run(job_id)
    assert died.is_set()
    tools.certifier.step = lambda: None
    celery = create_celery(context.settings)
    successor = build_worker(
        context.settings, celery=celery, db=context.db, store=context.store, tools=tools.for_worker()
    )
    successor.start()
    try:
        awaited(uploader, 1, state="ready", within_s=10)  # its lease would have had 45 s to run
    finally:
        successor.stop()
