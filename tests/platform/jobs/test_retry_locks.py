"""Trying a job again locks in the order of everybody who changes a version: adapter, version, job (no deadlock)."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import select, text, update

from lorikeet_platform.clock import now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Job
from lorikeet_platform.jobs import service
from lorikeet_platform.jobs.queue import enqueue
from lorikeet_platform.registry.catalogue import get_version
from lorikeet_platform.tenants.service import create_tenant

pytestmark = pytest.mark.slow
WITHIN_S = 10.0


@pytest.fixture
def job(postgres: Database) -> Job:
    """A failed validation."""
    with postgres.platform.unit_of_work() as work:
        tenant = create_tenant(work, slug="harbour", display_name=None, now=now_us())
        work.add(Adapter(tenant_id=tenant.id, id="adp_1", name="pirate", base_model="m", created_at=1, next_version=2))
        work.flush()
        version = AdapterVersion(tenant_id=tenant.id, id="ver_1", adapter_id="adp_1", number=1, state="failed_internal")
        version.bytes, version.target_modules, version.warnings = 1, [], []
        version.created_by, version.created_at = "key_1", 1
        work.add(version)
        work.flush()
        job = enqueue(work, tenant_id=tenant.id, kind="validate", version_id="ver_1", now=1)
        work.flush()
        work.execute(update(Job).values(state="failed", attempt=5, finished_at=1))
    return job


def test_n1_a_job_that_waits_for_its_version_holds_no_lock_that_others_need(postgres: Database, job: Job) -> None:
    ended: list[BaseException | None] = []

    def retry() -> None:
        try:
            with postgres.platform.unit_of_work() as work:
                service.retry(work, job.id, now_us())
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    with postgres.platform.unit_of_work() as work:
        get_version(work, job.tenant_id, "pirate", 1, for_update=True)
        thread = threading.Thread(target=retry)
        thread.start()
        waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        for _ in range(100):
            if work.scalar(waits):
                break
            thread.join(0.1)
        # As whoever changes the version does next; before, this was the deadlock.
        assert work.scalar(select(Job.id).where(Job.id == job.id).with_for_update(nowait=True)) == job.id
    thread.join(WITHIN_S)
    assert ended == [None]
    with postgres.platform.read() as work:
        assert work.get_one(Job, (job.tenant_id, job.id)).state == "queued"
