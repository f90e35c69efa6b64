"""On Postgres, a lock on a row holds off whoever changes it, and nobody who only refers to it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.clock import now_us
from lorikeet_platform.db.locks import lock_tenant
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Upload
from lorikeet_platform.ids import new_id
from lorikeet_platform.jobs.queue import enqueue
from lorikeet_platform.registry.aliasing.aliases import lock_adapter
from lorikeet_platform.registry.catalogue import get_version
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Step
from lorikeet_platform.registry.versions.sealing import SealRequest, seal
from lorikeet_platform.tenants.service import create_tenant

pytestmark = pytest.mark.slow
FILES = ("adapter_config.json", "adapter_model.safetensors")
BASE, KEEP_US, TRY_S = "base-m", 10**9, 3.0


@pytest.fixture
def version(postgres: Database) -> AdapterVersion:
    with postgres.platform.unit_of_work() as work:
        tenant = create_tenant(work, slug="harbour", display_name=None, now=now_us())
        work.add(
            Adapter(tenant_id=tenant.id, id="adp_1", name="support", base_model=BASE, created_at=1, next_version=2)
        )
        work.flush()
        version = AdapterVersion(
            tenant_id=tenant.id,
            id="ver_1",
            adapter_id="adp_1",
            number=1,
            state="ready",
            digest="a" * 64,
            ready_at=1,
            bytes=1,
            target_modules=[],
            warnings=[],
            created_by="key_1",
            created_at=1,
        )
        work.add(version)
    return version


@pytest.mark.parametrize(
    "lock",
    [
        lambda work, version: lock_tenant(work, version.tenant_id),
        lambda work, version: lock_adapter(work, version.tenant_id, version.adapter_id),
        lambda work, version: get_version(work, version.tenant_id, "support", 1, for_update=True),
    ],
    ids=["tenant", "adapter", "version"],
)
def test_a_row_that_is_locked_can_be_referred_to(
    postgres: Database, version: AdapterVersion, lock: Callable[[Session, AdapterVersion], object]
) -> None:
    with postgres.platform.unit_of_work() as held:
        lock(held, version)
        with postgres.platform.unit_of_work() as work:
            work.execute(text("SET LOCAL lock_timeout = '2s'"))
            enqueue(work, tenant_id=version.tenant_id, kind="retire", version_id=version.id, now=1)
            work.add(_another_of(version))


def test_seals_and_retirements_of_one_adapter_never_wait_for_each_other_in_a_ring(
    postgres: Database, version: AdapterVersion
) -> None:
    outcomes: Counter[str] = Counter()
    until = time.monotonic() + TRY_S
    threads_are_there = threading.Barrier(3)

    def repeat(name: str, act: Callable[[int], None]) -> None:
        threads_are_there.wait(10)
        number = 0
        while time.monotonic() < until:
            number += 1
            act(number)
            outcomes[name] += 1

    def push(sealer: int, number: int) -> None:
        uploads = {}
        with postgres.platform.unit_of_work() as work:
            for name in FILES:
                upload = _complete_upload(version.tenant_id, name, sha256=f"{sealer:08x}{number:056x}")
                uploads[name] = upload.id
                work.add(upload)
        request = SealRequest(adapter="support", files=uploads, alias=None, description=None)
        with postgres.platform.unit_of_work() as work:
            seal(work, Actor(version.tenant_id, "key_1"), request, base_model=BASE, now=now_us())

    def move(_number: int) -> None:
        step = Step(tenant_id=version.tenant_id, adapter="support", number=1, actor="key_1", now=now_us())
        with postgres.platform.unit_of_work() as work:
            lifecycle.retire(work, step, keep_us=KEEP_US)
        with postgres.platform.unit_of_work() as work:
            lifecycle.restore(work, step)
            work.execute(text("DELETE FROM jobs WHERE kind = 'retire'"))

    with ThreadPoolExecutor(3) as pool:
        running = [
            pool.submit(repeat, "seal", lambda number: push(1, number)),
            pool.submit(repeat, "seal", lambda number: push(2, number)),
            pool.submit(repeat, "retire", move),
        ]
        for thread in running:
            thread.result(TRY_S + 20)  # raises what a thread met, a deadlock too
    assert min(outcomes.values()) > 3


def _complete_upload(tenant_id: str, name: str, *, sha256: str) -> Upload:
    return Upload(
        tenant_id=tenant_id,
        id=new_id("upl"),
        adapter_name="support",
        filename=name,
        sha256=sha256,
        length=5,
        received=5,
        state="open",
        created_by="key_1",
        created_at=1,
        expires_at=now_us() + 10**12,
    )


def _another_of(version: AdapterVersion) -> AdapterVersion:
    return AdapterVersion(
        tenant_id=version.tenant_id,
        id="ver_2",
        adapter_id=version.adapter_id,
        number=2,
        bytes=1,
        target_modules=[],
        warnings=[],
        created_by="key_1",
        created_at=1,
    )
