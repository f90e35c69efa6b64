"""What workers do for the registry, on both databases: locks, queries and the whole way of a version."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from lorikeet_adapters.source import image_key
from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.clock import now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Job
from lorikeet_platform.jobs import queue
from lorikeet_platform.jobs.runner import Postponed
from lorikeet_platform.registry.work.guard import Figures, figures_of
from lorikeet_platform.registry.work.purging import PurgeChore
from lorikeet_platform.registry.work.reconciliation import Reconciler
from lorikeet_platform.registry.work.references import announce_digest, delete_image_if_unused
from tests.support.lora_files import tensors, write_files
from tests.support.platform_parts import FakeClock, Tenant, Uploader, a_tenant, a_version, make_context
from tests.support.usage_rows import usage_record
from tests.support.worker_tools import job_runner


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def both(database: Database, tmp_path: Path, clock: FakeClock) -> PlatformContext:
    return make_context(tmp_path, database, clock)


@pytest.fixture
def tenant(both: PlatformContext) -> Tenant:
    return a_tenant(both, "harbour")


@pytest.fixture
def uploads(both: PlatformContext, tenant: Tenant) -> Iterator[Uploader]:
    with TestClient(create_tenant_app(both)) as client:
        yield Uploader(client, tenant)


@pytest.fixture
def run_all(both: PlatformContext, clock: FakeClock) -> Callable[[], None]:
    """Works until no job is queued."""
    runner = job_runner(both)

    def run() -> None:
        for _ in range(20):
            with both.db.platform.read() as work:
                queued = work.scalars(select(Job.id).where(Job.state == "queued")).all()
            if not queued:
                return
            for job_id in queued:
                runner.run(job_id)
            clock.advance(2)
        raise AssertionError("jobs are left over")

    return run


def test_of_two_that_ask_at_once_for_the_same_job_both_get_it(database: Database, tenant: Tenant) -> None:
    with database.platform.unit_of_work() as work:
        version = a_version(work, tenant, name="pirate", state="validating")
    together = threading.Barrier(4)

    def ask() -> str:
        together.wait(10)
        with database.platform.unit_of_work() as work:
            return queue.enqueue(work, tenant_id=tenant.id, kind="validate", version_id=version.id, now=1).id

    with ThreadPoolExecutor(4) as pool:
        ids = {future.result(20) for future in [pool.submit(ask) for _ in range(4)]}
    assert len(ids) == 1
    with database.platform.read() as work:
        assert work.scalars(select(Job.id)).all() == list(ids)


def test_an_image_is_not_deleted_under_a_version_that_comes_to_need_it(
    both: PlatformContext, tenant: Tenant, tmp_path: Path
) -> None:
    digest = "d" * 64
    content = tmp_path / "image"
    content.write_bytes(b"image")
    for number in range(10):
        with both.db.platform.unit_of_work() as work:
            coming = a_version(work, tenant, name=f"pirate-{number}", state="validating")
        both.store.put_file(image_key(tenant.id, digest), content)
        together = threading.Barrier(2)

        def store(version_id: str = coming.id, together: threading.Barrier = together) -> None:
            together.wait(10)
            while True:
                try:
                    with both.db.platform.unit_of_work() as work:
                        announce_digest(work, tenant.id, version_id, digest, now=now_us())
                    break
                except Postponed:
                    time.sleep(0.01)
            both.store.put_file(image_key(tenant.id, digest), content)

        def delete(together: threading.Barrier = together) -> None:
            together.wait(10)
            delete_image_if_unused(both.db, both.store, tenant.id, digest)

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(store), pool.submit(delete)]:
                future.result(20)
        assert both.store.size(image_key(tenant.id, digest)) == len(b"image")
        with both.db.platform.unit_of_work() as work:
            work.get_one(AdapterVersion, (tenant.id, coming.id)).state = "purged"


def test_a_version_goes_all_the_way_from_its_upload_to_its_end(
    both: PlatformContext,
    tenant: Tenant,
    uploads: Uploader,
    run_all: Callable[[], None],
    clock: FakeClock,
    tmp_path: Path,
) -> None:
    for seed in (1, 2):
        content = write_files(tmp_path / str(seed), tensors(seed=seed))
        uploads.seal(content.config.read_bytes(), content.weights.read_bytes())
    run_all()
    path = "/v1/adapters/pirate/versions/2"
    assert uploads.client.get(path, headers=tenant.auth).json()["state"] == "ready"
    assert uploads.client.post(f"{path}/retire", json={}, headers=tenant.auth).status_code == 200
    run_all()
    clock.advance(8 * 24 * 3_600)
    PurgeChore(db=both.db, clock=clock).enqueue_due()
    run_all()
    Reconciler(db=both.db, store=both.store, temporary_dir=tmp_path, wake=lambda _: None, clock=clock).reconcile()
    with both.db.platform.read() as work:
        states = select(AdapterVersion.state).order_by(AdapterVersion.number)
        assert work.scalars(states).all() == ["ready", "purged"]
    assert len(list(both.store.entries("images/"))) == 1
    assert len(list(both.store.entries("files/"))) == 2


def test_figures_of_a_version_are_the_same(database: Database, tenant: Tenant) -> None:
    with database.platform.unit_of_work() as work:
        version = a_version(work, tenant, name="pirate")
        for wait in range(1, 21):
            is_ok = wait <= 19
            work.add(
                usage_record(
                    tenant,
                    admitted_at=1_000,
                    outcome="ok" if is_ok else "server_error",
                    adapter_id=version.adapter_id,
                    version_id=version.id,
                    first_token_at=1_000 + wait if is_ok else None,
                )
            )
    with database.platform.read() as work:
        assert figures_of(work, tenant.id, version.id, 1_000) == Figures(20, 1, 19)
