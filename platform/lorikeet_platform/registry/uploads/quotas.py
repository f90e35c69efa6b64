"""What a tenant may begin to send, and whether there is room for it: checked before an upload exists.

A version counts until it is purged, an open upload by the length it announced. Sealing checks once more, since what
was sent at leisure may meanwhile have become too much. The limits are the tenant's, read in the transaction that they
bind.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.db.locks import lock_tenant
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Upload
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import EffectiveLimits, Limit
from lorikeet_platform.limits.stored import limits_of_tenant
from lorikeet_platform.settings import GIB

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


def lock_and_read_limits(work: Session, tenant_id: str) -> EffectiveLimits:
    """The tenant's limits, and its row locked: of two changes at a limit only one passes."""
    return limits_of_tenant(work, lock_tenant(work, tenant_id))


def check_quotas(work: Session, announced: Announced, *, now: int) -> None:
    """Locks the tenant, so that of two creations at the limit only one passes.

    Raises:
        PlatformError: too_many_uploads, adapter_quota_exceeded.
    """
    limits = lock_and_read_limits(work, announced.tenant_id)
    n_open, open_bytes = _open_uploads(work, announced.tenant_id, now)
    most, at_once = limits["open_uploads"], limits["upload_inflight_bytes"]
    if n_open >= most.value:
        raise too_many_uploads(most, f"At most {most.value} uploads may be open at once")
    if open_bytes + announced.length > at_once.value:
        sentence = f"Open uploads may have at most {at_once.value} bytes together; {open_bytes} are announced"
        raise too_many_uploads(at_once, sentence)
    _check_adapters(work, announced, limits["adapters"], now)
    check_room(work, announced.tenant_id, limits, n_bytes=announced.length, on_the_way=open_bytes)


def check_room(work: Session, tenant_id: str, limits: EffectiveLimits, *, n_bytes: int, on_the_way: int = 0) -> None:
    """Whether `n_bytes` more fit what the tenant may keep; raises PlatformError(adapter_quota_exceeded)."""
    limit, kept = limits["adapter_bytes"], _kept_bytes(work, tenant_id)
    if kept + on_the_way + n_bytes > limit.value:
        raise PlatformError(
            "adapter_quota_exceeded",
            f"The {limit.origin}'s limit is {limit.value} bytes of adapters; {kept} are kept, {on_the_way} are on "
            f"their way, {n_bytes} more do not fit.",
        )


def too_many_adapters(limit: Limit) -> PlatformError:
    return PlatformError("adapter_quota_exceeded", f"The {limit.origin}'s limit is {limit.value} adapters.")


def too_many_uploads(limit: Limit, sentence: str) -> PlatformError:
    """Waiting helps, unless nothing is allowed at all."""
    sentence = f"{sentence}, by the {limit.origin}'s limit."
    return PlatformError("too_many_uploads", sentence, is_final=limit.value == 0)


def _check_adapters(work: Session, announced: Announced, limit: Limit, now: int) -> None:
    """Names of open uploads count like the adapters that they will become."""
    adapters = work.scalars(
        select(Adapter.name).where(Adapter.tenant_id == announced.tenant_id, Adapter.status == "active")
    )
    names = set(adapters) | set(work.scalars(select(Upload.adapter_name).where(*_open(announced.tenant_id, now))))
    if announced.adapter not in names and len(names) >= limit.value:
        raise too_many_adapters(limit)


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
