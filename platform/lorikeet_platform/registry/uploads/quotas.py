"""What a tenant may begin to send, and whether there is room for it: checked before an upload exists.

A version counts until it is purged, an open upload by the length it announced. Sealing checks once more, since what
was sent at leisure may meanwhile have become too much.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Tenant, Upload
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.settings import GIB, LimitSettings

# Room that new uploads leave to everything else on the store's disk: the smaller of a share and a size.
FLOOR_SHARE = 0.05
FLOOR_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True)
class Announced:
    """A file that a client wants to send."""

    tenant_id: str
    adapter: str
    length: int


def check_disk(store: BlobStore, length: int) -> None:
    """Raises PlatformError(storage_full)."""
    space = store.free_space()
    if space is None:
        return
    if space.free_bytes - length < min(FLOOR_BYTES, space.total_bytes * FLOOR_SHARE):
        raise PlatformError("storage_full")


def check_quotas(work: Session, announced: Announced, *, limits: LimitSettings, now: int) -> None:
    """Locks the tenant, so that of two creations at the limit only one passes.

    Raises:
        PlatformError: too_many_uploads, adapter_quota_exceeded.
    """
    work.get_one(Tenant, announced.tenant_id, with_for_update={"key_share": True})
    n_open, open_bytes = _open_uploads(work, announced.tenant_id, now)
    if n_open >= limits.open_uploads:
        raise PlatformError("too_many_uploads", f"At most {limits.open_uploads} uploads may be open at once.")
    if open_bytes + announced.length > limits.upload_inflight_bytes:
        raise PlatformError(
            "too_many_uploads",
            f"Open uploads may have at most {limits.upload_inflight_bytes} bytes together; {open_bytes} are announced.",
        )
    _check_adapters(work, announced, limits, now)
    kept = _kept_bytes(work, announced.tenant_id)
    if kept + open_bytes + announced.length > limits.adapter_bytes:
        raise PlatformError(
            "adapter_quota_exceeded",
            f"A tenant may keep at most {limits.adapter_bytes} bytes of adapters; {kept} are kept, {open_bytes} are "
            f"being sent, {announced.length} more do not fit.",
        )


def _check_adapters(work: Session, announced: Announced, limits: LimitSettings, now: int) -> None:
    """Names of open uploads count like the adapters that they will become."""
    adapters = work.scalars(
        select(Adapter.name).where(Adapter.tenant_id == announced.tenant_id, Adapter.status == "active")
    )
    names = set(adapters) | set(work.scalars(select(Upload.adapter_name).where(*_open(announced.tenant_id, now))))
    if announced.adapter not in names and len(names) >= limits.adapters:
        raise PlatformError("adapter_quota_exceeded", f"A tenant may have at most {limits.adapters} adapters.")


def _open_uploads(work: Session, tenant_id: str, now: int) -> tuple[int, int]:
    """Their number, and the bytes they announced."""
    row = work.execute(
        select(func.count(), func.coalesce(func.sum(Upload.length), 0)).where(*_open(tenant_id, now))
    ).one()
    return int(row[0]), int(row[1])


def _kept_bytes(work: Session, tenant_id: str) -> int:
    kept = select(func.coalesce(func.sum(AdapterVersion.bytes), 0)).where(
        AdapterVersion.tenant_id == tenant_id, AdapterVersion.state != "purged"
    )
    return int(work.scalar(kept) or 0)


def _open(tenant_id: str, now: int) -> tuple[ColumnElement[bool], ...]:
    return Upload.tenant_id == tenant_id, Upload.state == "open", Upload.expires_at > now
