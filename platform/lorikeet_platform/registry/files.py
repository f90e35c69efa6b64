"""The files of a version as they were uploaded: where they are kept, and how they are given out again.

A file is checked while it is sent: its last piece leaves only when the whole has the right digest, so that nobody ends
up with a complete answer that is not the file. A version serves from its image, not from these: when one of them is
missing or damaged, the log says so and the version stays in service.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

import structlog

from lorikeet_adapters.store.blob import BlobDamaged, BlobMissing, BlobStore
from lorikeet_platform.db.tables import AdapterVersion, VersionFile
from lorikeet_platform.errors import PlatformError, quoted

log = structlog.get_logger(__name__)

READ_BYTES = 1 << 20
KEPT_STATES = frozenset({"ready", "retired", "quarantined"})


class FileDamaged(Exception):
    """The stored bytes are not those that were uploaded."""


def file_key(tenant_id: str, sha256: str) -> str:
    return f"files/{tenant_id}/sha256/{sha256[:2]}/{sha256}"


def check_kept(version: AdapterVersion) -> None:
    """Raises PlatformError(not_found) for a version whose files are not, or no longer, in the store."""
    if version.state not in KEPT_STATES:
        raise PlatformError("not_found", f"The version is {version.state}; its files are not kept.")


def pick_file(files: list[VersionFile], filename: str) -> VersionFile:
    """Raises PlatformError(not_found)."""
    for file in files:
        if file.filename == filename:
            return file
    raise PlatformError("not_found", f"The version has no file {quoted(filename)}.")


def open_file(store: BlobStore, file: VersionFile) -> Iterator[bytes]:
    """The file's bytes, in pieces; the store is opened before this returns.

    Raises:
        FileDamaged: now, or instead of the last piece.
    """
    try:
        reader = store.open(file_key(file.tenant_id, file.sha256))
    except (BlobMissing, BlobDamaged):
        raise FileDamaged(file.filename) from None
    return _checked(reader, file)


def report_damage(file: VersionFile) -> None:
    log.error(
        "an uploaded file is missing or damaged in the store",
        tenant=file.tenant_id,
        version=file.version_id,
        filename=file.filename,
    )


def _checked(reader: BinaryIO, file: VersionFile) -> Iterator[bytes]:
    digest, n_bytes, held = hashlib.sha256(), 0, b""
    with reader:
        while piece := reader.read(READ_BYTES):
            digest.update(piece)
            n_bytes += len(piece)
            if held:
                yield held
            held = piece
    if n_bytes != file.bytes or digest.hexdigest() != file.sha256:
        report_damage(file)
        raise FileDamaged(file.filename)
    yield held
