"""Jobs and chores on the administration port."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from lorikeet_platform.app import create_admin_app
from lorikeet_platform.clock import HOUR, SECOND
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, AuditEvent, Job
from lorikeet_platform.jobs import chores, queue
from lorikeet_platform.jobs.chores import Chore
from lorikeet_platform.jobs.queue import JobKind
from tests.support.platform_parts import FakeClock, Tenant, a_version

Headers = dict[str, str]


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def admin(context: PlatformContext, woken: list[str], as_admin: Headers) -> TestClient:
    app = create_admin_app(replace(context, wake=woken.append))
    return TestClient(app, raise_server_exceptions=False, base_url="http://127.0.0.1:8001", headers=as_admin)


def a_job(
    context: PlatformContext,
    tenant: Tenant,
    *,
    name: str = "pirate",
    kind: JobKind = "validate",
    state: str = "queued",
    version_state: str = "validating",
    number: int = 1,
) -> str:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, tenant, name=name, number=number, state=version_state, live=False)
        job = queue.enqueue(work, tenant_id=tenant.id, kind=kind, version_id=version.id, now=context.clock())
        is_over = state in ("done", "failed")
        work.execute(
            update(Job)
            .where(Job.id == job.id)
            .values(state=state, attempt=5 if is_over else 0, finished_at=context.clock() if is_over else None)
        )
        return job.id


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["data"]]


def test_jobs_are_listed_newest_first_page_by_page(
    admin: TestClient, context: PlatformContext, harbour: Tenant, orchard: Tenant, clock: FakeClock
) -> None:
    made = []
    for number in range(1, 6):
        made.append(a_job(context, harbour if number % 2 else orchard, name=f"a{number}", number=number))
        clock.advance(1)
    listed, after = [], None
    while True:
        page = admin.get("/admin/v1/jobs", params={"limit": 2} | ({"after": after} if after else {}))
        listed += ids(page)
        after = page.json()["next"]
        assert page.json()["has_more"] == (after is not None)
        if after is None:
            break
    assert listed == made[::-1]
    newest = admin.get("/admin/v1/jobs", params={"limit": 1}).json()["data"][0]
    assert newest == {
        "id": made[-1],
        "tenant": "harbour",
        "kind": "validate",
        "adapter": "a5",
        "version": 5,
        "state": "queued",
        "attempt": 0,
        "max_attempts": 5,
        "last_error": None,
        "run_after": (clock.now - SECOND) // SECOND,
        "created_at": (clock.now - SECOND) // SECOND,
        "finished_at": None,
    }


def test_jobs_of_one_state_or_tenant(
    admin: TestClient, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    done = a_job(context, harbour, name="one", state="done")
    failed = a_job(context, orchard, name="two", state="failed")
    assert ids(admin.get("/admin/v1/jobs", params={"state": "failed"})) == [failed]
    assert ids(admin.get("/admin/v1/jobs", params={"tenant": "harbour"})) == [done]
    assert ids(admin.get("/admin/v1/jobs", params={"tenant": "harbour", "state": "failed"})) == []


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ("state=broken", 400, "state"),
        ("tenant=nobody", 404, "slug"),
        ("after=bm8gY3Vyc29y", 400, "after"),
        ("kind=purge", 400, "kind"),
        ("limit=0", 400, "limit"),
    ],
)
def test_what_is_asked_wrongly_is_refused_by_name(admin: TestClient, query: str, status: int, param: str) -> None:
    answer = admin.get(f"/admin/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_strangers_see_nothing(admin: TestClient) -> None:
    for method, path in (("GET", "jobs"), ("GET", "chores"), ("POST", "jobs/job_x/retry")):
        assert admin.request(method, f"/admin/v1/{path}", headers={"authorization": ""}).status_code == 401


def test_a_failed_validation_is_tried_again_with_its_version(
    admin: TestClient, context: PlatformContext, harbour: Tenant, woken: list[str]
) -> None:
    job_id = a_job(context, harbour, state="failed", version_state="failed_internal")
    retried = admin.post(f"/admin/v1/jobs/{job_id}/retry")
    assert (retried.status_code, retried.json()["state"], retried.json()["attempt"]) == (200, "queued", 0)
    assert retried.json()["finished_at"] is None
    assert woken == [job_id]
    with context.db.platform.read() as work:
        assert work.scalars(select(AdapterVersion.state)).all() == ["validating"]
        event = work.scalars(select(AuditEvent).where(AuditEvent.action == "job.retry")).one()
        assert (event.tenant_id, event.actor, event.subject) == (harbour.id, "administrator", job_id)
    with context.db.platform.unit_of_work() as work:
        assert queue.lease(work, job_id, context.clock()) is not None


@pytest.mark.parametrize("state", ["queued", "leased", "done"])
def test_only_a_failed_job_is_tried_again(
    admin: TestClient, context: PlatformContext, harbour: Tenant, state: str, woken: list[str]
) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate", state="retired")
        job_id = queue.enqueue(work, tenant_id=harbour.id, kind="retire", version_id=version.id, now=context.clock()).id
    with context.db.platform.unit_of_work() as work:
        if state != "queued":
            held = queue.lease(work, job_id, context.clock())
            assert held is not None
        if state == "done":
            assert held is not None
            queue.finish(work, held, context.clock())
    refused = admin.post(f"/admin/v1/jobs/{job_id}/retry")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "state_conflict")
    assert woken == []


def test_a_job_whose_work_is_done_otherwise_is_not_tried_again(
    admin: TestClient, context: PlatformContext, harbour: Tenant, woken: list[str]
) -> None:
    failed = a_job(context, harbour, kind="purge", state="failed", version_state="retired")
    with context.db.platform.unit_of_work() as work:
        version_id = work.scalars(select(AdapterVersion.id)).one()
        queue.enqueue(work, tenant_id=harbour.id, kind="purge", version_id=version_id, now=context.clock())
    gone = a_job(context, harbour, name="gone", state="failed", version_state="purged")
    for job_id in (failed, gone):
        refused = admin.post(f"/admin/v1/jobs/{job_id}/retry")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "state_conflict")
    assert admin.post("/admin/v1/jobs/job_unknown/retry").status_code == 404
    assert woken == []
    with context.db.platform.read() as work:
        states = work.scalars(select(Job.state).where(Job.id.in_([failed, gone]))).all()
        assert states == ["failed", "failed"]
        assert work.scalars(select(AuditEvent).where(AuditEvent.action == "job.retry")).all() == []


def test_chores_say_when_they_are_due_and_how_they_went(
    admin: TestClient, context: PlatformContext, clock: FakeClock
) -> None:
    known = [Chore(name, HOUR, lambda: None) for name in ("b.held", "a.done", "c.failed")]
    with context.db.platform.unit_of_work() as work:
        chores.add_missing(work, known, clock.now)
    with context.db.platform.unit_of_work() as work:
        held, done, failed = (chores.take(work, chore, clock.now) for chore in known)
        assert held is not None
        assert done is not None
        assert failed is not None
        chores.finish(work, done, {"mismatches": 0}, clock.now)
        chores.fail(work, failed, "OSError", clock.now)
    now = clock.now // SECOND
    assert admin.get("/admin/v1/chores").json()["data"] == [
        {
            "name": "a.done",
            "due_at": now + 3_600,
            "running": False,
            "finished_at": now,
            "error": None,
            "result": {"mismatches": 0},
        },
        {
            "name": "b.held",
            "due_at": now,
            "running": True,
            "finished_at": None,
            "error": None,
            "result": None,
        },
        {
            "name": "c.failed",
            "due_at": now + 600,
            "running": False,
            "finished_at": now,
            "error": "OSError",
            "result": None,
        },
    ]
