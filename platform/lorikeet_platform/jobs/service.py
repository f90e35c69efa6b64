"""Jobs as administrators see them: the newest first, and a failed one tried again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Row, Select, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import record
from lorikeet_platform.auth.actor import ADMINISTRATOR
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Job, Tenant
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.jobs.queue import WAKE_AGAIN_US
from lorikeet_platform.registry.versions.lifecycle import lock_version, validate_again

JobState = Literal["queued", "leased", "done", "failed"]


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A job and the names of what it is for."""

    job: Job
    tenant: str
    adapter: str
    version: int


def newest(
    work: Session, *, state: JobState | None, tenant_id: str | None, behind: tuple[int, str] | None, limit: int
) -> Sequence[JobEntry]:
    """Args: behind: time and id of the last one of the page before."""
    statement = _named_jobs().order_by(Job.created_at.desc(), Job.id.desc()).limit(limit)
    if state is not None:
        statement = statement.where(Job.state == state)
    if tenant_id is not None:
        statement = statement.where(Job.tenant_id == tenant_id)
    if behind is not None:
        statement = statement.where(tuple_(Job.created_at, Job.id) < tuple_(*behind))
    return [_entry(row) for row in work.execute(statement)]


def retry(work: Session, job_id: str, now: int) -> JobEntry:
    """A failed job waits for a worker again, with all of its attempts; the caller wakes one.

    Raises:
        PlatformError: not_found; state_conflict for a job that has not failed, or whose work is no longer to be done.
    """
    found = work.execute(_named_jobs().where(Job.id == job_id)).one_or_none()
    if found is None:
        raise PlatformError("not_found", f"There is no job {quoted(job_id)}.", "job_id")
    # In the order of everybody who changes a version: adapter, version, job.
    lock_version(work, found.Job.tenant_id, str(found.Job.version_id))
    locked = _named_jobs().where(Job.id == job_id).with_for_update(of=Job, key_share=True)
    row = work.execute(locked, execution_options={"populate_existing": True}).one()
    job: Job = row.Job
    if job.state != "failed":
        raise PlatformError("state_conflict", f"Only a failed job can be tried again; this one is {job.state}.")
    job.state, job.attempt, job.finished_at = "queued", 0, None
    job.run_after, job.wake_at = now, now + WAKE_AGAIN_US
    try:
        work.flush()
    except IntegrityError:
        raise PlatformError("state_conflict", "Another job does the same already.") from None
    if job.kind == "validate":
        validate_again(work, job.tenant_id, str(job.version_id))
    record(
        work,
        tenant_id=job.tenant_id,
        actor=ADMINISTRATOR,
        action="job.retry",
        subject=job.id,
        now=now,
        details={"kind": job.kind, "version": job.version_id},
    )
    return _entry(row)


def _named_jobs() -> Select[Job, str, str, int]:
    return (
        select(Job, Tenant.slug, Adapter.name, AdapterVersion.number)
        .join(Tenant, Tenant.id == Job.tenant_id)
        .join(AdapterVersion, (AdapterVersion.tenant_id == Job.tenant_id) & (AdapterVersion.id == Job.version_id))
        .join(Adapter, (Adapter.tenant_id == AdapterVersion.tenant_id) & (Adapter.id == AdapterVersion.adapter_id))
    )


def _entry(row: Row[Job, str, str, int]) -> JobEntry:
    return JobEntry(row.Job, row.slug, row.name, row.number)
