"""The validation job: from the slices of a sealed version to an adapter the engine serves, or a rejection by name.

    slices ─ assemble, compare SHA-256 ─▶ files ─ jail ─▶ normalised file ─ certifier ─▶ figures
        ─▶ files and image stored ─ engine: alone and in company ─▶ row: ready, with its certificate

Write order: the row says which image it will have, blobs durable, then the row is ready. A second worker on the same
version writes the same blobs under the same keys.

Whose fault it is when a step breaks:

content broke a rule                   the file's: rejected, at once
certificate failed                     the file's: rejected `certificate_failed`, with the figures
an administrator's quarantine          of this content, as another version: rejected `content_quarantined`
the jail's process broke               ours the first time, the file's the second: rejected `validator_crashed`
certifier, database, lost slices, an
engine with another base model, or that
answers otherwise in company           ours: tried again, `failed_internal` in the end
no engine or no room in it, no store or
no room in it, bytes being deleted     nobody's: the job waits, as long as it takes; nothing becomes ready without them
"""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy.orm import Session

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.files import CONFIG_FILE
from lorikeet_adapters.sandbox.jail import JailBroken
from lorikeet_adapters.sandbox.record import ValidatedRecord
from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.blob import BlobConflict, BlobDamaged, BlobStore, BlobUnavailable
from lorikeet_engine.certification.certifying import certificate_of
from lorikeet_engine.certification.measured import Measured, disturbances, failures
from lorikeet_engine.errors import AdapterRetired, DeadlineExceeded, EngineUnavailable, Overloaded
from lorikeet_engine.protocol import EngineInfo
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.jobs.queue import LeasedJob
from lorikeet_platform.jobs.runner import Postponed, Write
from lorikeet_platform.registry.files import file_key
from lorikeet_platform.registry.uploads.leftovers import validation_prefix
from lorikeet_platform.registry.uploads.service import purge_bytes
from lorikeet_platform.registry.work.references import announce_digest
from lorikeet_platform.registry.work.tools import WorkerTools
from lorikeet_platform.registry.work.validating import verdicts
from lorikeet_platform.registry.work.validating.assembling import UploadedFile, assemble, uploaded_files, version_files
from lorikeet_platform.registry.work.validating.live_check import is_served_alike
from lorikeet_platform.registry.work.validating.measurements import Measurements, Subject
from lorikeet_platform.registry.work.validating.verdicts import ContentQuarantined, Rejection

log = structlog.get_logger(__name__)

FLOAT32_BYTES, HALF_BYTES = 4, 2
# What an engine answers that is not there or has no room now, or that another version's retirement came to while this
# one of the same content was looked at; another answer is a fault.
NOT_NOW: Final = (EngineUnavailable, Overloaded, DeadlineExceeded, AdapterRetired)
# A file system that is full, or away: of the store in a directory, or of the temporary files.
NO_STORE: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.ENOTCONN,
        errno.EMFILE,
        errno.ENFILE,
    }
)
WAITS_FOR_ENGINE: Final = "WaitsForEngine"
CRASHED: Final = Rejection(
    "validator_crashed", "Reading the files ended the process that read them, twice. The files are likely damaged."
)

QUARANTINED: Final = Rejection(
    "content_quarantined", "An administrator has quarantined another version that has the same content as these files."
)


class NeighboursDisturbed(Exception):
    """In a mixed batch, others came out otherwise than alone. That is our code's fault and no file's."""


class ModelsDiffer(Exception):
    """What was measured here says nothing of what the engine would serve."""


class ServedUnlike(Exception):
    """The engine answers otherwise in company than alone. The float32 measurements had no such fault: it is not the
    file's, and another engine may serve it."""


class VersionValidator:
    """Handler of `validate` jobs.

    Args:
        base_model: the base model's name, for certificates.
        keep_rejected_us: how long a rejected version's row keeps its verdict before it may be purged.
    """

    def __init__(
        self,
        *,
        db: Database,
        store: BlobStore,
        tools: WorkerTools,
        base_model: str,
        temporary_dir: Path,
        keep_rejected_us: int,
        clock: Clock = now_us,
    ) -> None:
        self._db, self._store, self._tools, self._base_model = db, store, tools, base_model
        self._temporary_dir, self._keep_rejected_us, self._clock = temporary_dir, keep_rejected_us, clock
        self._measurements = Measurements()

    def perform(self, job: LeasedJob) -> Write:
        try:
            if WAITS_FOR_ENGINE in job.errors:
                self._tools.engine.info()  # all the work would be in vain while it is away
            return self._perform(job)
        except NOT_NOW as error:
            raise Postponed(WAITS_FOR_ENGINE) from error
        except BlobUnavailable as error:
            raise Postponed("WaitsForStore") from error
        except OSError as error:
            if error.errno not in NO_STORE:
                raise
            raise Postponed("WaitsForStore") from error
        except ContentQuarantined:
            return self._rejection(job, QUARANTINED)
        except AdapterRejected as rejected:
            return self._rejection(job, Rejection.of(rejected))
        except JailBroken:
            if JailBroken.__name__ not in job.errors:
                raise
            return self._rejection(job, CRASHED)

    def give_up(self, work: Session, job: LeasedJob, error: str) -> None:
        verdicts.fail(work, job.tenant_id, job.version_id, error, now=self._clock())

    def clean_up(self, job: LeasedJob) -> None:
        """The slices are no longer needed: the files are stored whole, or were rejected."""
        self._measurements.forget(job.tenant_id, job.version_id)
        with self._db.tenant(job.tenant_id).read() as work:
            if work.get_one(AdapterVersion, (job.tenant_id, job.version_id)).state == "failed_internal":
                return  # it may be validated again
            uploads = [(job.tenant_id, file.upload_id) for file in version_files(work, job.tenant_id, job.version_id)]
        purge_bytes(self._store, uploads)

    def _perform(self, job: LeasedJob) -> Write:
        with self._db.tenant(job.tenant_id).read() as work:
            files = uploaded_files(work, job.tenant_id, job.version_id)
        self._temporary_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._temporary_dir, prefix=validation_prefix(job.id)) as name:
            folder = Path(name)
            paths = {file.filename: folder / file.filename for file in files}
            for file in files:
                if assemble(self._store, file, paths[file.filename]) != file.sha256:
                    sentence = f"{file.filename}: the bytes do not match the declared SHA-256."
                    return self._rejection(job, Rejection("checksum_mismatch", sentence))
            image = folder / "image"
            record = self._tools.jail(paths, image=image)
            with self._db.tenant(job.tenant_id).read() as work:
                verdicts.check_not_quarantined(work, job.tenant_id, record.digest)
            info = self._tools.engine.info()
            serving_bytes = self._check_room(record, info)
            measured = self._measure(job, folder, image, record.digest, info.dtype)
            if measured.base_model_digest != info.model_digest:
                raise ModelsDiffer("this worker has another base model than the engine")
            if failed := failures(measured):
                return self._rejection(job, _not_certified(failed))
            if disturbed := disturbances(measured):
                raise NeighboursDisturbed("; ".join(disturbed))
            self._keep(job, files, record, folder, image)
        if not is_served_alike(self._tools.engine, job.tenant_id, record.digest):
            raise ServedUnlike(record.digest)
        config_digest = next(file.sha256 for file in files if file.filename == CONFIG_FILE)
        certificate = certificate_of(
            record,
            measured,
            base_model=self._base_model,
            config_digest=config_digest,
            serving_bytes=serving_bytes,
            served_alike=True,
            made_at=self._clock(),
        )
        return lambda work: verdicts.accept(
            work, job.tenant_id, job.version_id, record, certificate, now=certificate.made_at
        )

    def _check_room(self, record: ValidatedRecord, info: EngineInfo) -> int:
        """Bytes of the adapter in the engine's arena; raises AdapterRejected for one that can never be loaded."""
        serving_bytes = record.serving_bytes(FLOAT32_BYTES if info.dtype == "float32" else HALF_BYTES)
        room = self._tools.engine.adapter_room()
        if serving_bytes > room:
            raise AdapterRejected(
                "adapter_too_large",
                subject="the adapter",
                found=f"{serving_bytes} bytes when served",
                allowed=f"at most {room}",
            )
        return serving_bytes

    def _measure(self, job: LeasedJob, folder: Path, image: Path, digest: str, dtype: str) -> Measured:
        """Once for each version: a validation that waits for engine or store comes here again and again."""
        subject = Subject(job.tenant_id, job.version_id, digest, dtype)
        if (known := self._measurements.find(subject)) is not None:
            return known
        measured = self._tools.certifier.measure(folder=folder, image=image, digest=digest, serving_dtype=dtype)
        if not disturbances(measured):  # a fault of ours may be gone in the next attempt
            self._measurements.keep(subject, measured)
        return measured

    def _keep(
        self, job: LeasedJob, files: tuple[UploadedFile, ...], record: ValidatedRecord, folder: Path, image: Path
    ) -> None:
        with self._db.tenant(job.tenant_id).unit_of_work() as work:
            announce_digest(work, job.tenant_id, job.version_id, record.digest, now=self._clock())
        for file in files:
            self._put(file_key(job.tenant_id, file.sha256), folder / file.filename)
        self._put(image_key(job.tenant_id, record.digest), image)

    def _put(self, key: str, path: Path) -> None:
        """Store what has the digest in `key`. Anything else under that key is damaged, which this makes good."""
        try:
            self._store.put_file(key, path)
        except (BlobConflict, BlobDamaged):
            log.error("damaged bytes in the store are replaced", key=key)
            self._store.delete(key)
            self._store.put_file(key, path)

    def _rejection(self, job: LeasedJob, rejection: Rejection) -> Write:
        now = self._clock()
        purge_after = now + self._keep_rejected_us
        return lambda work: verdicts.reject(
            work, job.tenant_id, job.version_id, rejection, purge_after=purge_after, now=now
        )


def _not_certified(failed: tuple[str, ...]) -> Rejection:
    return Rejection("certificate_failed", f"The adapter is not served exactly: {'; '.join(failed)}.")
