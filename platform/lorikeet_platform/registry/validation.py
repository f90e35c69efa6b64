"""The validation job: from the slices of a sealed version to an adapter the engine can serve, or a rejection by name.

    slices ─ assemble, compare SHA-256 ─▶ files ─ validate_adapter ─▶ normalised file ─▶ blobs ─▶ row: ready

Write order: blobs durable, then the row. A second worker on the same version writes the same blobs under the same keys.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.files import CONFIG_FILE, WEIGHTS_FILE
from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.blob import BlobStore
from lorikeet_adapters.validate import ValidatedAdapter, validate_adapter
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Upload, VersionFile
from lorikeet_platform.jobs.queue import LeasedJob
from lorikeet_platform.jobs.runner import Write
from lorikeet_platform.registry.aliases import point_when_ready
from lorikeet_platform.registry.files import file_key
from lorikeet_platform.registry.states import transition
from lorikeet_platform.registry.uploads.leftovers import VALIDATION_PREFIX
from lorikeet_platform.registry.uploads.service import list_slices, purge_bytes, slice_key

COPY_BYTES = 1 << 20
MAX_DETAIL = 2_000


@dataclass(frozen=True, slots=True)
class _File:
    """What one of the two files should be, and where its bytes lie."""

    filename: str
    sha256: str
    upload_id: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rejection:
    code: str
    detail: str


class VersionValidator:
    """Handler of `validate` jobs.

    Args:
        itemsize: bytes per element on the engine's device, for the estimate `serving_bytes`.
    """

    def __init__(
        self,
        *,
        db: Database,
        store: BlobStore,
        table: ModuleTable,
        max_rank: int,
        itemsize: int,
        temporary_dir: Path,
        clock: Clock = now_us,
    ) -> None:
        self._db, self._store, self._table = db, store, table
        self._max_rank, self._itemsize = max_rank, itemsize
        self._temporary_dir, self._clock = temporary_dir, clock

    def perform(self, job: LeasedJob) -> Write:
        files = self._files(job)
        self._temporary_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._temporary_dir, prefix=VALIDATION_PREFIX) as folder:
            try:
                return self._validate(job, files, Path(folder))
            except AdapterRejected as rejected:
                rejection = _Rejection(rejected.code, rejected.message)
        return lambda work: self._reject(work, job, rejection)

    def give_up(self, work: Session, job: LeasedJob) -> None:
        transition(work, _version(work, job), "failed_internal")

    def clean_up(self, job: LeasedJob) -> None:
        """The slices are no longer needed: the files are stored whole, or were rejected."""
        with self._db.read() as work:
            uploads = [(job.tenant_id, file.upload_id) for file in _version_files(work, job)]
        purge_bytes(self._store, uploads)

    def _validate(self, job: LeasedJob, files: Sequence[_File], folder: Path) -> Write:
        for file in files:
            if self._assemble(file, folder / file.filename) != file.sha256:
                rejection = _Rejection(
                    "checksum_mismatch", f"{file.filename}: the bytes do not match the declared SHA-256."
                )
                return lambda work: self._reject(work, job, rejection)
        config, weights, image = folder / CONFIG_FILE, folder / WEIGHTS_FILE, folder / "image"
        adapter = validate_adapter(
            config=config, weights=[weights], index=None, table=self._table, max_rank=self._max_rank
        )
        with image.open("wb") as out:
            digest = write_normalised(adapter, [weights], out)
        for file in files:
            self._store.put_file(file_key(job.tenant_id, file.sha256), folder / file.filename)
        self._store.put_file(image_key(job.tenant_id, digest), image)
        return lambda work: self._accept(work, job, adapter, digest)

    def _assemble(self, file: _File, target: Path) -> str:
        """Join the slices; returns the SHA-256 of the whole."""
        with target.open("xb") as out:
            for key in file.pieces:
                with self._store.open(key) as piece:
                    shutil.copyfileobj(piece, out, COPY_BYTES)
        with target.open("rb") as whole:
            return hashlib.file_digest(whole, "sha256").hexdigest()

    def _accept(self, work: Session, job: LeasedJob, adapter: ValidatedAdapter, digest: str) -> None:
        version, now = _version(work, job), self._clock()
        transition(
            work,
            version,
            "ready",
            digest=digest,
            rank=adapter.rank_max,
            serving_bytes=adapter.serving_bytes(self._itemsize),
            tensor_count=adapter.tensor_count,
            target_modules=list(adapter.target_modules),
            config=adapter.config,
            warnings=[*adapter.warnings, *_twins(work, version, digest)],
            ready_at=now,
        )
        point_when_ready(work, version, now=now)

    def _reject(self, work: Session, job: LeasedJob, rejection: _Rejection) -> None:
        detail = rejection.detail[:MAX_DETAIL]
        transition(work, _version(work, job), "rejected", reject_code=rejection.code, reject_detail=detail)

    def _files(self, job: LeasedJob) -> list[_File]:
        with self._db.read() as work:
            return [
                _File(
                    file.filename,
                    file.sha256,
                    file.upload_id,
                    tuple(
                        slice_key(job.tenant_id, file.upload_id, piece.slice_id)
                        for piece in list_slices(work, job.tenant_id, file.upload_id)
                    ),
                )
                for file in _version_files(work, job)
            ]


def _version(work: Session, job: LeasedJob) -> AdapterVersion:
    """The version, locked for its verdict; its uploads have then served their purpose.

    Locks come in the order of `sealing.seal`: config, weights, version. Another order could end in a deadlock.
    """
    for file in _version_files(work, job):
        upload = work.get_one(Upload, (job.tenant_id, file.upload_id), with_for_update=True)
        if upload.state == "sealed":
            upload.state = "consumed"
    return work.get_one(AdapterVersion, (job.tenant_id, job.version_id), with_for_update=True)


def _version_files(work: Session, job: LeasedJob) -> Sequence[VersionFile]:
    mine = select(VersionFile).where(VersionFile.tenant_id == job.tenant_id, VersionFile.version_id == job.version_id)
    return work.scalars(mine.order_by(VersionFile.filename)).all()


def _twins(work: Session, version: AdapterVersion, digest: str) -> list[str]:
    """A note when other files came out as the same adapter: the versions then share one image."""
    numbers = work.scalars(
        select(AdapterVersion.number)
        .where(
            AdapterVersion.tenant_id == version.tenant_id,
            AdapterVersion.adapter_id == version.adapter_id,
            AdapterVersion.digest == digest,
            AdapterVersion.id != version.id,
            AdapterVersion.state == "ready",
        )
        .order_by(AdapterVersion.number)
    ).all()
    return [f"the same content as version {numbers[0]}"] if numbers else []
