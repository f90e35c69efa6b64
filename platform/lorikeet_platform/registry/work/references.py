"""Which stored bytes a tenant's versions still need, and how those are deleted that none needs.

The store is never asked inside a transaction, which on SQLite would hold everybody's writing up. A deletion is a mark
in one transaction, the store's own work, and the mark's end in another. A version says in a transaction what it will
store, and waits while a mark stands for any of it. Both lock the tenant's row: so either the version keeps the bytes
from being marked, or it stores them anew after they are gone.

A mark ends by itself after the longest time that a store may still act on what it was told, so that a deletion whose
worker died, or whose answer was lost, holds nobody up for longer. Bytes it may have left are found when store and rows
are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.clock import MINUTE, SECOND, Clock, now_us
from lorikeet_platform.db.locks import lock_tenant
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, BlobDeletion, VersionFile
from lorikeet_platform.ids import new_id
from lorikeet_platform.jobs.runner import Postponed
from lorikeet_platform.registry.files import file_key

# A store's client gives up after three minutes, with all its retries.
LONGEST_DELETION_US: Final = 10 * MINUTE
LOOK_AGAIN_US: Final = 2 * SECOND
_NO_SYNC = {"synchronize_session": False}


def announce_digest(work: Session, tenant_id: str, version_id: str, digest: str, *, now: int) -> None:
    """A version that is being validated relies on this image and on its files from now on; then they are stored.

    Raises:
        Postponed: some of it is being deleted.
    """
    lock_tenant(work, tenant_id)
    files = select(VersionFile.sha256).where(VersionFile.tenant_id == tenant_id, VersionFile.version_id == version_id)
    keys = [image_key(tenant_id, digest), *(file_key(tenant_id, sha256) for sha256 in work.scalars(files))]
    going = select(BlobDeletion.id).where(
        BlobDeletion.tenant_id == tenant_id, BlobDeletion.key.in_(keys), BlobDeletion.over_at > now
    )
    if work.scalars(going.limit(1)).first() is not None:
        raise Postponed("WaitsForDeletion", LOOK_AGAIN_US)
    mine = update(AdapterVersion).where(
        AdapterVersion.tenant_id == tenant_id, AdapterVersion.id == version_id, AdapterVersion.state == "validating"
    )
    work.execute(mine.values(digest=digest), execution_options=_NO_SYNC)


def image_in_use(work: Session, tenant_id: str, digest: str) -> bool:
    version = select(AdapterVersion.id).where(
        AdapterVersion.tenant_id == tenant_id, AdapterVersion.digest == digest, AdapterVersion.state != "purged"
    )
    return work.scalars(version.limit(1)).first() is not None


def file_in_use(work: Session, tenant_id: str, sha256: str) -> bool:
    version = (
        select(VersionFile.version_id)
        .join(
            AdapterVersion,
            (AdapterVersion.tenant_id == VersionFile.tenant_id) & (AdapterVersion.id == VersionFile.version_id),
        )
        .where(VersionFile.tenant_id == tenant_id, VersionFile.sha256 == sha256, AdapterVersion.state != "purged")
    )
    return work.scalars(version.limit(1)).first() is not None


def delete_image_if_unused(
    db: Database, store: BlobStore, tenant_id: str, digest: str, *, clock: Clock = now_us
) -> bool:
    """True when the image is gone. Raises what the store raises; nobody relies on the image for a while then."""
    return _delete_if_unused(
        db, store, tenant_id, image_key(tenant_id, digest), lambda work: image_in_use(work, tenant_id, digest), clock
    )


def delete_file_if_unused(
    db: Database, store: BlobStore, tenant_id: str, sha256: str, *, clock: Clock = now_us
) -> bool:
    """True when the file is gone; as `delete_image_if_unused`."""
    return _delete_if_unused(
        db, store, tenant_id, file_key(tenant_id, sha256), lambda work: file_in_use(work, tenant_id, sha256), clock
    )


def forget_old_marks(work: Session, now: int) -> None:
    """Of deletions that nobody ended."""
    work.execute(delete(BlobDeletion).where(BlobDeletion.over_at <= now), execution_options=_NO_SYNC)


def _delete_if_unused(
    db: Database, store: BlobStore, tenant_id: str, key: str, is_used: Callable[[Session], bool], clock: Clock
) -> bool:
    with db.tenant(tenant_id).unit_of_work() as work:
        lock_tenant(work, tenant_id)
        if is_used(work):
            return False
        mark = _mark(work, tenant_id, key, clock())
    _delete_marked(db, store, mark)
    return True


def _mark(work: Session, tenant_id: str, key: str, now: int) -> BlobDeletion:
    mark = BlobDeletion(tenant_id=tenant_id, key=key, id=new_id("del"), over_at=now + LONGEST_DELETION_US)
    work.add(mark)
    return mark


def _delete_marked(db: Database, store: BlobStore, mark: BlobDeletion) -> None:
    store.delete(mark.key)
    with db.tenant(mark.tenant_id).unit_of_work() as work:
        mine = delete(BlobDeletion).where(
            BlobDeletion.tenant_id == mark.tenant_id, BlobDeletion.key == mark.key, BlobDeletion.id == mark.id
        )
        work.execute(mine, execution_options=_NO_SYNC)
