"""Rules of uploads: rows and offsets. Bytes are already in the store when a slice is recorded here.

The offset moves by compare and set, so that of two gateways that received the same slice one is told 409.
Keys in the store are built from ids alone: `uploads/{tenant}/{upload}/{slice}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.auth.actor import SYSTEM, Actor
from lorikeet_platform.clock import SECOND
from lorikeet_platform.db.tables import Upload, UploadSlice
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.ids import new_id
from lorikeet_platform.registry.audited import record_upload
from lorikeet_platform.registry.reach import check_reach_of_name, names_in_reach
from lorikeet_platform.registry.uploads.protocol import UploadMetadata
from lorikeet_platform.registry.uploads.quotas import Announced, check_quotas
from lorikeet_platform.settings import LimitSettings

KEY_PREFIX = "uploads/"
QUERY_IDS = 500
LIVES = 3  # progress keeps an upload alive, but its bytes must not be held for ever


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """Bytes [begin, begin + bytes) of an upload, already durable under their key."""

    slice_id: str
    begin: int
    bytes: int
    sha256: str


def slice_key(tenant_id: str, upload_id: str, slice_id: str) -> str:
    return f"{KEY_PREFIX}{tenant_id}/{upload_id}/{slice_id}"


def create_upload(
    work: Session, actor: Actor, metadata: UploadMetadata, length: int, *, limits: LimitSettings, now: int
) -> Upload:
    """Raises PlatformError: adapter_not_allowed_for_key, too_many_uploads, adapter_quota_exceeded."""
    check_reach_of_name(work, actor.tenant_id, metadata.adapter)
    check_quotas(work, Announced(actor.tenant_id, metadata.adapter, length), now=now)
    upload = Upload(
        tenant_id=actor.tenant_id,
        id=new_id("upl"),
        adapter_name=metadata.adapter,
        filename=metadata.filename,
        sha256=metadata.sha256,
        length=length,
        received=0,
        state="open",
        created_by=actor.name,
        created_at=now,
        expires_at=_expiry(now, now, limits),
    )
    work.add(upload)
    record_upload(work, upload, "upload.create", actor=actor.name, now=now, length=length)
    return upload


def list_uploads(work: Session, tenant_id: str, adapter: str | None, now: int) -> Sequence[Upload]:
    """The tenant's open uploads that `work` reaches, oldest first; of one adapter, or of all."""
    mine = select(Upload).where(Upload.tenant_id == tenant_id, Upload.state == "open", Upload.expires_at > now)
    if adapter is not None:
        mine = mine.where(Upload.adapter_name == adapter)
    names = names_in_reach(work, tenant_id)
    if names is not None:
        mine = mine.where(Upload.adapter_name.in_(sorted(names)))
    return work.scalars(mine.order_by(Upload.created_at, Upload.id)).all()


def get_upload(work: Session, tenant_id: str, upload_id: str, now: int) -> Upload:
    """An upload that is not over. Another tenant's, an expired and a missing one are the same 404.

    Raises:
        PlatformError: not_found, adapter_not_allowed_for_key.
    """
    upload = work.get(Upload, (tenant_id, upload_id))
    if upload is None or upload.state == "terminated" or (upload.state == "open" and upload.expires_at <= now):
        raise PlatformError("not_found", "There is no such upload.")
    check_reach_of_name(work, tenant_id, upload.adapter_name)
    return upload


def check_slice(upload: Upload, offset: int) -> None:
    """Whether a slice may begin at `offset`, before its bytes are read.

    Raises:
        PlatformError: upload_sealed, offset_conflict.
    """
    if upload.state != "open":
        raise PlatformError("upload_sealed")
    if offset != upload.received:
        raise PlatformError("offset_conflict", f"The upload stands at {upload.received}.", "Upload-Offset")


def add_slice(work: Session, upload: Upload, piece: StoredSlice, *, limits: LimitSettings, now: int) -> Upload:
    """Move the offset over `piece`; progress keeps the upload alive.

    Raises:
        PlatformError: offset_conflict when another slice was first, upload_sealed, invalid_value for too many slices.
    """
    n_slices = work.scalar(
        select(func.count()).where(UploadSlice.tenant_id == upload.tenant_id, UploadSlice.upload_id == upload.id)
    )
    if (n_slices or 0) >= limits.upload_slices:
        raise PlatformError("invalid_value", f"An upload may have at most {limits.upload_slices} slices.")
    moved = work.execute(
        update(Upload)
        .where(
            Upload.tenant_id == upload.tenant_id,
            Upload.id == upload.id,
            Upload.state == "open",
            Upload.received == piece.begin,
            Upload.length >= piece.begin + piece.bytes,
        )
        .values(received=piece.begin + piece.bytes, expires_at=_expiry(upload.created_at, now, limits))
        .returning(Upload.id),
        execution_options={"synchronize_session": False},
    ).one_or_none()
    if moved is None:
        current = get_upload(work, upload.tenant_id, upload.id, now)
        check_slice(current, piece.begin)
        raise PlatformError("offset_conflict", "The slice goes past the end of the file.", "Upload-Offset")
    work.add(
        UploadSlice(
            tenant_id=upload.tenant_id,
            upload_id=upload.id,
            begin=piece.begin,
            bytes=piece.bytes,
            sha256=piece.sha256,
            slice_id=piece.slice_id,
            stored_at=now,
        )
    )
    return work.get_one(Upload, (upload.tenant_id, upload.id), populate_existing=True)


def terminate_upload(work: Session, actor: Actor, upload_id: str, now: int) -> None:
    """Raises PlatformError: not_found, adapter_not_allowed_for_key, upload_sealed."""
    upload = get_upload(work, actor.tenant_id, upload_id, now)
    ended = work.execute(
        update(Upload)
        .where(Upload.tenant_id == actor.tenant_id, Upload.id == upload.id, Upload.state == "open")
        .values(state="terminated")
        .returning(Upload.id),
        execution_options={"synchronize_session": False},
    ).one_or_none()
    if ended is None:
        raise PlatformError("upload_sealed")
    record_upload(work, upload, "upload.terminate", actor=actor.name, now=now)


def list_slices(work: Session, tenant_id: str, upload_id: str) -> Sequence[UploadSlice]:
    """In the order of the file."""
    mine = select(UploadSlice).where(UploadSlice.tenant_id == tenant_id, UploadSlice.upload_id == upload_id)
    return work.scalars(mine.order_by(UploadSlice.begin)).all()


def expire_uploads(work: Session, now: int, *, limit: int = 100) -> list[tuple[str, str]]:
    """Ends open uploads whose time is over; returns (tenant id, upload id) of those whose bytes can go."""
    late = select(Upload).where(Upload.state == "open", Upload.expires_at <= now).limit(limit)
    uploads = work.scalars(late.with_for_update(skip_locked=True, key_share=True)).all()
    for upload in uploads:
        upload.state = "terminated"
        record_upload(work, upload, "upload.terminate", actor=SYSTEM, now=now, reason="its time is over")
    return [(upload.tenant_id, upload.id) for upload in uploads]


def purge_bytes(store: BlobStore, uploads: Iterable[tuple[str, str]]) -> None:
    """Delete all slices of uploads that are over, recorded or not."""
    for tenant_id, upload_id in uploads:
        for entry in list(store.entries(slice_key(tenant_id, upload_id, ""))):
            store.delete(entry.key)


def list_stored(store: BlobStore) -> list[tuple[str, str]]:
    """(tenant id, upload id) of every upload that has bytes in the store."""
    folders = {tuple(entry.key.removeprefix(KEY_PREFIX).split("/")[:2]) for entry in store.entries(KEY_PREFIX)}
    return sorted((tenant_id, upload_id) for tenant_id, upload_id in folders)


def those_over(work: Session, uploads: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The ones among `uploads`, of any tenant, whose bytes nobody will read again."""
    over: list[tuple[str, str]] = []
    for start in range(0, len(uploads), QUERY_IDS):
        ids = [upload_id for _, upload_id in uploads[start : start + QUERY_IDS]]
        mine = select(Upload.tenant_id, Upload.id).where(
            Upload.id.in_(ids), Upload.state.in_(("consumed", "terminated"))
        )
        over += [(row.tenant_id, row.id) for row in work.execute(mine)]
    return over


def _expiry(created_at: int, now: int, limits: LimitSettings) -> int:
    life = limits.upload_lifetime_s * SECOND
    return min(now + life, created_at + LIVES * life)
