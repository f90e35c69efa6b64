"""Which stored bytes a tenant's versions still need. A version that is purged needs none.

A blob is deleted, and a version says what it will store, under a lock on the tenant's row: so a version that comes out
as content that another one leaves behind either keeps it from being deleted, or stores it anew.
"""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lorikeet_adapters.source import image_key
from lorikeet_adapters.store.blob import BlobStore
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Tenant, VersionFile
from lorikeet_platform.registry.files import file_key

_NO_SYNC = {"synchronize_session": False}


def announce_digest(work: Session, tenant_id: str, version_id: str, digest: str) -> None:
    """A version that is being validated refers to this image from now on, before it is stored."""
    lock_tenant(work, tenant_id)
    mine = update(AdapterVersion).where(
        AdapterVersion.tenant_id == tenant_id, AdapterVersion.id == version_id, AdapterVersion.state == "validating"
    )
    work.execute(mine.values(digest=digest), execution_options=_NO_SYNC)


def lock_tenant(work: Session, tenant_id: str) -> None:
    work.get_one(Tenant, tenant_id, with_for_update={"key_share": True})


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


def delete_image_if_unused(db: Database, store: BlobStore, tenant_id: str, digest: str) -> bool:
    """True when the image is gone."""
    with db.unit_of_work() as work:
        lock_tenant(work, tenant_id)
        if image_in_use(work, tenant_id, digest):
            return False
        store.delete(image_key(tenant_id, digest))
    return True


def delete_file_if_unused(db: Database, store: BlobStore, tenant_id: str, sha256: str) -> bool:
    """True when the file is gone."""
    with db.unit_of_work() as work:
        lock_tenant(work, tenant_id)
        if file_in_use(work, tenant_id, sha256):
            return False
        store.delete(file_key(tenant_id, sha256))
    return True
