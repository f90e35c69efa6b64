"""The jobs table as a queue: who may work on a job, until when, and how it ends.

A lease is a token and a time. Every write of a worker carries the token, so that a worker that lost its lease (it was
too slow, or its machine slept) cannot write what another has done since. Celery is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lorikeet_platform.clock import SECOND
from lorikeet_platform.db.tables import Job
from lorikeet_platform.ids import new_id

JobKind = Literal["validate", "retire", "purge"]

LEASE_US = 45 * SECOND
HEARTBEAT_S = 15.0
WAKE_AGAIN_US = 15 * SECOND
FIRST_POSTPONEMENT_US, LONGEST_POSTPONEMENT_US = 2 * SECOND, 60 * SECOND
MAX_ERROR = 2_000
BETWEEN_ERRORS = ", "
_NO_SYNC = {"synchronize_session": False}


class LeaseLost(Exception):
    """Another worker has the job now; what this one did must not be written."""


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A job in the hands of one worker; `errors` are the classes of what went wrong in earlier attempts."""

    tenant_id: str
    id: str
    kind: str
    version_id: str
    attempt: int
    max_attempts: int
    created_at: int
    errors: tuple[str, ...]
    token: str

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def is_exhausted(self) -> bool:
        """The last attempt ended without a word: its worker was killed."""
        return self.attempt > self.max_attempts


def enqueue(
    work: Session, *, tenant_id: str, kind: JobKind, version_id: str, now: int, run_after: int | None = None
) -> Job:
    """A job in the caller's transaction: no change of a version without the job that follows from it.

    The caller wakes a worker after the commit. A job of this kind that is still unfinished is that job: nothing is
    added, and it is no later than it was.

    Args:
        run_after: not before this time; a sweeper wakes a worker then.
    """
    existing = _unfinished(work, tenant_id, kind, version_id)
    if existing is not None:
        return existing
    start = now if run_after is None else run_after
    job = Job(
        tenant_id=tenant_id,
        id=new_id("job"),
        kind=kind,
        version_id=version_id,
        run_after=start,
        wake_at=start if run_after is not None else now + WAKE_AGAIN_US,
        created_at=now,
    )
    try:
        with work.begin_nested():
            work.add(job)
    except IntegrityError:  # another transaction was first
        existing = _unfinished(work, tenant_id, kind, version_id)
        if existing is None:
            raise
        return existing
    return job


def lease(work: Session, job_id: str, now: int) -> LeasedJob | None:
    """The job, if it is due and nobody holds it."""
    token = new_id("job")
    row = work.execute(
        update(Job)
        .where(Job.id == job_id, _is_free(now), Job.run_after <= now)
        .values(state="leased", attempt=Job.attempt + 1, lease_token=token, lease_expires_at=now + LEASE_US)
        .returning(
            Job.tenant_id,
            Job.id,
            Job.kind,
            Job.version_id,
            Job.attempt,
            Job.max_attempts,
            Job.created_at,
            Job.last_error,
        ),
        execution_options=_NO_SYNC,
    ).one_or_none()
    if row is None:
        return None
    errors = tuple(row.last_error.split(BETWEEN_ERRORS)) if row.last_error else ()
    return LeasedJob(
        tenant_id=row.tenant_id,
        id=row.id,
        kind=row.kind,
        version_id=row.version_id,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        created_at=row.created_at,
        errors=errors,
        token=token,
    )


def extend(work: Session, job: LeasedJob, now: int) -> None:
    """Raises LeaseLost."""
    _write(work, job, lease_expires_at=now + LEASE_US)


def finish(work: Session, job: LeasedJob, now: int) -> None:
    """Done, in the same transaction as what the job produced. Raises LeaseLost, and then nothing is kept."""
    _write(work, job, state="done", lease_token=None, lease_expires_at=None, finished_at=now)


def retry_later(work: Session, job: LeasedJob, *, error: str, now: int) -> None:
    """Back into the queue, after 2, 4, 8 … seconds. Raises LeaseLost."""
    _put_back(work, job, again=now + (SECOND << job.attempt), last_error=_with(job, error))


def postpone(work: Session, job: LeasedJob, *, why: str, delay_us: int | None, now: int) -> None:
    """Back into the queue without an attempt used up: nothing failed, it cannot be done yet. Raises LeaseLost.

    Args:
        delay_us: when to look again; None = after a quarter of the job's age, but within a minute.
    """
    if delay_us is None:
        delay_us = min(max((now - job.created_at) // 4, FIRST_POSTPONEMENT_US), LONGEST_POSTPONEMENT_US)
    _put_back(work, job, again=now + delay_us, attempt=job.attempt - 1, last_error=_with(job, why))


def fail(work: Session, job: LeasedJob, *, error: str, now: int) -> None:
    """No more attempts. Raises LeaseLost."""
    _write(
        work,
        job,
        state="failed",
        lease_token=None,
        lease_expires_at=None,
        finished_at=now,
        last_error=_with(job, error),
    )


def take_due(work: Session, now: int, *, limit: int = 100) -> Sequence[str]:
    """Ids to wake a worker for: unfinished, unheld, due. Each is not taken again for a while."""
    due = select(Job.id).where(_is_free(now), Job.wake_at <= now).order_by(Job.wake_at).limit(limit)
    ids = work.scalars(due.with_for_update(skip_locked=True)).all()
    if not ids:
        return ids
    work.execute(update(Job).where(Job.id.in_(ids)).values(wake_at=now + WAKE_AGAIN_US), execution_options=_NO_SYNC)
    return ids


def wake_all(work: Session, now: int, *, break_leases: bool) -> None:
    """After a start: every unfinished job is due at once. `break_leases` when no other worker can exist."""
    work.execute(update(Job).where(Job.state == "queued").values(wake_at=now), execution_options=_NO_SYNC)
    if break_leases:
        broken = update(Job).where(Job.state == "leased").values(lease_expires_at=now, wake_at=now)
        work.execute(broken, execution_options=_NO_SYNC)


def _unfinished(work: Session, tenant_id: str, kind: JobKind, version_id: str) -> Job | None:
    return work.scalars(
        select(Job).where(
            Job.tenant_id == tenant_id,
            Job.kind == kind,
            Job.version_id == version_id,
            Job.state.in_(("queued", "leased")),
        )
    ).one_or_none()


def _is_free(now: int) -> ColumnElement[bool]:
    return or_(Job.state == "queued", and_(Job.state == "leased", Job.lease_expires_at <= now))


def _with(job: LeasedJob, error: str) -> str:
    """All that went wrong so far, each once, the latest last."""
    earlier = [name for name in job.errors if name != error]
    return BETWEEN_ERRORS.join([*earlier, error])[-MAX_ERROR:]


def _put_back(work: Session, job: LeasedJob, *, again: int, **values: object) -> None:
    _write(work, job, state="queued", lease_token=None, lease_expires_at=None, run_after=again, wake_at=again, **values)


def _write(work: Session, job: LeasedJob, **values: object) -> None:
    mine = update(Job).where(Job.tenant_id == job.tenant_id, Job.id == job.id, Job.lease_token == job.token)
    row = work.execute(mine.values(**values).returning(Job.id), execution_options=_NO_SYNC).one_or_none()
    if row is None:
        raise LeaseLost(job.id)
