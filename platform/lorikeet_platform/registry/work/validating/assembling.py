"""A version's files: from the slices they arrived in to whole files."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.db.tables import VersionFile
from lorikeet_platform.registry.uploads.service import list_slices, slice_key

COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """What one of a version's files should be, and where its bytes lie."""

    filename: str
    sha256: str
    upload_id: str
    pieces: tuple[str, ...]


def version_files(work: Session, tenant_id: str, version_id: str) -> Sequence[VersionFile]:
    """By name."""
    mine = select(VersionFile).where(VersionFile.tenant_id == tenant_id, VersionFile.version_id == version_id)
    return work.scalars(mine.order_by(VersionFile.filename)).all()


def uploaded_files(work: Session, tenant_id: str, version_id: str) -> tuple[UploadedFile, ...]:
    """A version's files with the slices that they are made of."""
    return tuple(
        UploadedFile(
            file.filename,
            file.sha256,
            file.upload_id,
            tuple(
                slice_key(tenant_id, file.upload_id, piece.slice_id)
                for piece in list_slices(work, tenant_id, file.upload_id)
            ),
        )
        for file in version_files(work, tenant_id, version_id)
    )


def assemble(store: BlobStore, file: UploadedFile, target: Path) -> str:
    """Join a file's slices at `target`; returns the SHA-256 of the whole. Raises BlobMissing."""
    with target.open("xb") as out:
        for key in file.pieces:
            with store.open(key) as piece:
                shutil.copyfileobj(piece, out, COPY_BYTES)
    with target.open("rb") as whole:
        return hashlib.file_digest(whole, "sha256").hexdigest()
