"""Jobs and chores on the administration port: transport only."""

from __future__ import annotations

from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import get_context
from lorikeet_platform.db.tables import Chore as ChoreRow
from lorikeet_platform.jobs import service
from lorikeet_platform.jobs.chores import list_chores
from lorikeet_platform.jobs.service import JobEntry, JobState
from lorikeet_platform.tenants.service import get_tenant
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.listing import Listing
from lorikeet_platform.web.pagination import ALL_TENANTS, DEFAULT_PAGE, After, Cursors, Page, PageLimit, cut
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

JOBS: Final = "jobs"

router = APIRouter(
    prefix="/admin/v1",
    tags=["jobs"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


class Job(BaseModel):
    id: str
    tenant: str
    kind: str
    adapter: str
    version: int
    state: JobState
    attempt: int
    max_attempts: int
    last_error: str | None = Field(description="classes of what went wrong, the latest last; never a text")
    run_after: int = Field(description="not before this time")
    created_at: int
    finished_at: int | None

    @classmethod
    def of(cls, entry: JobEntry) -> Job:
        job = entry.job
        return cls(
            id=job.id,
            tenant=entry.tenant,
            kind=job.kind,
            adapter=entry.adapter,
            version=entry.version,
            state=cast(JobState, job.state),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            last_error=job.last_error,
            run_after=unix_seconds(job.run_after),
            created_at=unix_seconds(job.created_at),
            finished_at=None if job.finished_at is None else unix_seconds(job.finished_at),
        )


class JobPage(Page[Job]):
    pass


class Chore(BaseModel):
    """Regular work that one worker at a time does."""

    name: str
    due_at: int
    running: bool
    finished_at: int | None
    error: str | None = Field(description="class of what went wrong the last time; null = nothing")
    result: dict[str, Any] | None = Field(description="figures of the last round that went well")

    @classmethod
    def of(cls, row: ChoreRow, now: int) -> Chore:
        return cls(
            name=row.name,
            due_at=unix_seconds(row.due_at),
            running=row.lease_expires_at is not None and row.lease_expires_at > now,
            finished_at=None if row.finished_at is None else unix_seconds(row.finished_at),
            error=row.error,
            result=row.result,
        )


class ChoreList(Listing[Chore]):
    pass


@router.get("/jobs", operation_id="list_jobs")
def list_jobs(
    request: Request,
    state: JobState | None = None,
    tenant: Annotated[str | None, Query(max_length=40, description="a slug")] = None,
    limit: PageLimit = DEFAULT_PAGE,
    after: After = None,
) -> JobPage:
    """Jobs of all tenants, or of one, the newest first."""
    context = get_context(request)
    cursors = Cursors(context.pepper, ALL_TENANTS, JOBS)
    position = cursors.read(after)
    behind = None if position is None else (int(position[0]), str(position[1]))
    with context.db.platform.read() as work:
        tenant_id = None if tenant is None else get_tenant(work, tenant).id
        found = service.newest(work, state=state, tenant_id=tenant_id, behind=behind, limit=limit + 1)
    page, has_more = cut(found, limit)
    return JobPage(
        data=[Job.of(entry) for entry in page],
        has_more=has_more,
        next=cursors.write([page[-1].job.created_at, page[-1].job.id]) if has_more else None,
    )


@router.post("/jobs/{job_id}/retry", operation_id="retry_job")
def retry_job(job_id: str, request: Request) -> Job:
    """Have a failed job tried again, with all of its attempts."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        job = Job.of(service.retry(work, job_id, context.clock()))
    context.wake(job.id)
    return job


@router.get("/chores", operation_id="list_chores")
def list_all_chores(request: Request) -> ChoreList:
    """Regular work: when it is due, and how it went."""
    context = get_context(request)
    with context.db.platform.read() as work:
        return ChoreList(data=[Chore.of(row, context.clock()) for row in list_chores(work)])
