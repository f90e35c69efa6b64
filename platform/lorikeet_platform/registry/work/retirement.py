"""The engine's side of a version that left service: nothing new starts on it, and what runs is waited for.

    retired       what runs ends as it began, but within two minutes
    quarantined   what runs ends at once
    ready again   it was restored meanwhile: nothing to do

The job holds no worker while it waits: it looks again every second or two, until nothing runs on the version. Another
ready version of the tenant with the same content keeps the adapter in service. One that is being validated is waited
for as long as the drain would last: the engine answers for it meanwhile, which a retirement would forbid.
"""

from __future__ import annotations

from typing import Final

import structlog
from sqlalchemy.orm import Session

from lorikeet_engine.errors import EngineError, EngineUnavailable
from lorikeet_platform.clock import SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.jobs.queue import LeasedJob, enqueue
from lorikeet_platform.jobs.runner import Postponed, Write
from lorikeet_platform.registry.versions.lifecycle import has_twin
from lorikeet_platform.registry.work.tools import Engine

log = structlog.get_logger(__name__)

DRAIN_US: Final = 120 * SECOND
LOOK_AGAIN_US: Final = 1 * SECOND
OUT_OF_SERVICE: Final = ("retired", "quarantined", "purged")


class VersionRetirer:
    """Handler of `retire` jobs."""

    def __init__(self, *, db: Database, engine: Engine, clock: Clock = now_us) -> None:
        self._db, self._engine, self._clock = db, engine, clock

    def perform(self, job: LeasedJob) -> Write:
        with self._db.tenant(job.tenant_id).read() as work:
            version = work.get_one(AdapterVersion, (job.tenant_id, job.version_id))
            is_over = version.state not in OUT_OF_SERVICE or has_twin(work, version, "ready")
            is_coming = has_twin(work, version, "validating")
        is_forced = self._is_forced(job, version)
        if not is_over and is_coming and not is_forced:
            raise Postponed("TwinIsValidated", LOOK_AGAIN_US)
        if not is_over and version.digest is not None:
            self._end_service(job, version.digest, force=is_forced)
        return lambda work: self._finish(work, job, version.state_rev)

    def give_up(self, work: Session, job: LeasedJob, error: str) -> None:
        """The version stays out of service all the same; the engine drops what nobody asks for."""
        log.error("the engine was not told of a retirement", version=job.version_id, error=error)
        self._purge_if_due(work, job)

    def clean_up(self, job: LeasedJob) -> None:
        """Somebody may have restored the version, or validated a twin, while the engine was being told otherwise."""
        with self._db.tenant(job.tenant_id).read() as work:
            version = work.get_one(AdapterVersion, (job.tenant_id, job.version_id))
            is_served = version.state == "ready" or has_twin(work, version, "ready")
        if is_served and version.digest is not None:
            try:
                self._engine.warm(job.tenant_id, version.digest)
            except EngineError as error:
                log.warning("a restored adapter is not warm", version=version.id, error=type(error).__name__)

    def _is_forced(self, job: LeasedJob, version: AdapterVersion) -> bool:
        since = job.created_at if version.retired_at is None else version.retired_at
        return version.state == "quarantined" or self._clock() >= since + DRAIN_US

    def _end_service(self, job: LeasedJob, digest: str, *, force: bool) -> None:
        try:
            self._engine.retire(job.tenant_id, digest, force=force)
            n_running = self._engine.running_on(job.tenant_id, digest)
        except EngineUnavailable as error:
            raise Postponed(type(error).__name__) from error
        if n_running:
            raise Postponed("StillRunning", LOOK_AGAIN_US)

    def _finish(self, work: Session, job: LeasedJob, seen: int) -> None:
        version = work.get_one(AdapterVersion, (job.tenant_id, job.version_id), with_for_update={"key_share": True})
        if version.state_rev != seen and version.state in OUT_OF_SERVICE:
            raise Postponed("StateMoved", 0)  # it left service (again) meanwhile: this job is that step's job, too
        self._purge_if_due(work, job)

    def _purge_if_due(self, work: Session, job: LeasedJob) -> None:
        """A version that is to go at once goes now that nothing runs on it."""
        version = work.get_one(AdapterVersion, (job.tenant_id, job.version_id))
        now = self._clock()
        if version.state != "ready" and version.purge_after is not None and version.purge_after <= now:
            enqueue(work, tenant_id=job.tenant_id, kind="purge", version_id=version.id, now=now, run_after=now)
