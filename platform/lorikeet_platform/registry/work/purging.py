"""The end of a version's bytes. The state goes first, the bytes last, so that a crash leaves bytes and never a gap.

The chore asks for the purge of every version whose time is over. The job takes the version's state to `purged`, unless
it was restored meanwhile, and deletes what no other version of the tenant refers to. It waits for a `retire` job of the
version, so that an engine that still answers with the adapter can load it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog
from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from lorikeet_adapters.store.blob import BlobStore, BlobUnavailable
from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.clock import SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Job, Upload, VersionFile
from lorikeet_platform.jobs.queue import LeasedJob, enqueue
from lorikeet_platform.jobs.runner import Postponed, Write
from lorikeet_platform.registry.audited import record_version
from lorikeet_platform.registry.uploads.service import purge_bytes
from lorikeet_platform.registry.versions.states import transition
from lorikeet_platform.registry.work.references import (
    delete_file_if_unused,
    delete_image_if_unused,
    forget_old_marks,
)
from lorikeet_platform.registry.work.retirement import DRAIN_US
from lorikeet_platform.registry.work.validating.assembling import version_files

log = structlog.get_logger(__name__)

LOOK_AGAIN_US: Final = 1 * SECOND
# An engine that nobody reaches for so long is not waited for: its requests were promised no more than the drain.
LONGEST_WAIT_US: Final = DRAIN_US + 30 * SECOND
PURGEABLE: Final = ("retired", "rejected", "quarantined", "failed_internal")
PURGES_A_ROUND: Final = 100


class VersionPurger:
    """Handler of `purge` jobs."""

    def __init__(self, *, db: Database, store: BlobStore, clock: Clock = now_us) -> None:
        self._db, self._store, self._clock = db, store, clock

    def perform(self, job: LeasedJob) -> Write:
        with self._db.tenant(job.tenant_id).unit_of_work() as work:
            files = version_files(work, job.tenant_id, job.version_id)
            uploads = _locked_uploads(work, job.tenant_id, files)
            version = work.get_one(AdapterVersion, (job.tenant_id, job.version_id), with_for_update={"key_share": True})
            if version.state != "purged" and not self._is_due(version):
                return _nothing_to_write
            if self._is_in_use(work, job):
                raise Postponed("StillRetiring", LOOK_AGAIN_US)
            if version.state != "purged":
                transition(work, version, "purged")
                record_version(work, version, "version.purge", actor=SYSTEM, now=self._clock())
            _consume(uploads)
        try:
            self._delete_bytes(job.tenant_id, version.digest, files)
        except (BlobUnavailable, OSError) as error:
            log.warning("a purged version's bytes are not deleted yet", version=job.version_id, error=str(error))
            raise Postponed("WaitsForStore") from error
        return _nothing_to_write

    def give_up(self, work: Session, job: LeasedJob, error: str) -> None:
        """What is left behind is found when store and rows are compared."""

    def clean_up(self, job: LeasedJob) -> None:
        pass

    def _delete_bytes(self, tenant_id: str, digest: str | None, files: Sequence[VersionFile]) -> None:
        for sha256 in sorted({file.sha256 for file in files}):
            delete_file_if_unused(self._db, self._store, tenant_id, sha256, clock=self._clock)
        if digest is not None:
            delete_image_if_unused(self._db, self._store, tenant_id, digest, clock=self._clock)
        purge_bytes(self._store, [(tenant_id, file.upload_id) for file in files])

    def _is_due(self, version: AdapterVersion) -> bool:
        is_over = version.purge_after is not None and version.purge_after <= self._clock()
        return is_over and version.state in PURGEABLE

    def _is_in_use(self, work: Session, job: LeasedJob) -> bool:
        retiring = select(Job.id).where(
            Job.tenant_id == job.tenant_id,
            Job.kind == "retire",
            Job.version_id == job.version_id,
            Job.state.in_(("queued", "leased")),
            Job.created_at > self._clock() - LONGEST_WAIT_US,
        )
        return work.scalars(retiring.limit(1)).first() is not None


class PurgeChore:
    """Asks for the purge of versions whose `purge_after` has passed, and forgets deletions that nobody ended."""

    def __init__(self, *, db: Database, clock: Clock = now_us) -> None:
        self._db, self._clock = db, clock

    def enqueue_due(self) -> Mapping[str, int]:
        now = self._clock()
        with self._db.platform.unit_of_work() as work:
            forget_old_marks(work, now)
        asked = exists().where(
            Job.tenant_id == AdapterVersion.tenant_id,
            Job.version_id == AdapterVersion.id,
            Job.kind == "purge",
            Job.state.in_(("queued", "leased")),
        )
        due = (
            select(AdapterVersion.tenant_id, AdapterVersion.id)
            .where(AdapterVersion.purge_after <= now, AdapterVersion.state.in_(PURGEABLE), ~asked)
            .order_by(AdapterVersion.purge_after)
            .limit(PURGES_A_ROUND)
        )
        with self._db.platform.read() as work:
            found = work.execute(due).all()
        for tenant_id, version_id in found:
            with self._db.tenant(tenant_id).unit_of_work() as work:
                enqueue(work, tenant_id=tenant_id, kind="purge", version_id=version_id, now=now, run_after=now)
        if found:
            log.info("versions are to be purged", versions=len(found))
        return {"versions": len(found)}


def _nothing_to_write(_work: Session) -> None:
    """The version was restored, or its time is not over; or all of it is written."""


def _locked_uploads(work: Session, tenant_id: str, files: Sequence[VersionFile]) -> list[Upload]:
    """In the order of every lock: uploads by file name, then the version."""
    return [work.get_one(Upload, (tenant_id, file.upload_id), with_for_update={"key_share": True}) for file in files]


def _consume(uploads: Iterable[Upload]) -> None:
    """Slices that were kept for another validation will not be read again; whoever lists leftovers may delete them."""
    for upload in uploads:
        if upload.state == "sealed":
            upload.state = "consumed"
