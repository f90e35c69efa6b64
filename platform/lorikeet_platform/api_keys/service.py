"""Rules and queries of API keys. The secret leaves once, from `create_key`."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.auth.actor import ADMINISTRATOR
from lorikeet_platform.auth.key_format import new_key
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.auth.scopes import DEFAULT_SCOPES
from lorikeet_platform.db.conflicts import add_or_raise
from lorikeet_platform.db.tables import ApiKey
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.ids import new_id


def create_key(work: Session, pepper: Pepper, *, tenant_id: str, name: str, now: int) -> tuple[ApiKey, str]:
    """A new active key and its text.

    Raises:
        PlatformError: name_conflict; a name is free again once its key is revoked.
    """
    made, key_id = new_key(), new_id("key")
    key = ApiKey(
        tenant_id=tenant_id,
        id=key_id,
        subject_id=key_id,
        scopes=list(DEFAULT_SCOPES),
        created_by=ADMINISTRATOR,
        public_id=made.public_id,
        secret_mac=pepper.mac(made.text, pepper.current),
        pepper_version=pepper.current,
        name=name,
        hint=made.hint,
        status="active",
        created_at=now,
    )
    add_or_raise(work, key, PlatformError("name_conflict", f"The tenant has an active key {quoted(name)}.", "name"))
    return key, made.text


def list_keys(work: Session, tenant_id: str) -> list[ApiKey]:
    """All keys of a tenant, oldest first, revoked ones included."""
    return list(work.scalars(select(ApiKey).where(ApiKey.tenant_id == tenant_id).order_by(ApiKey.id)))


def revoke_key(work: Session, key_id: str, now: int) -> ApiKey:
    """The key, revoked; a second time changes nothing.

    Raises:
        PlatformError: not_found.
    """
    key = work.scalars(select(ApiKey).where(ApiKey.id == key_id).with_for_update()).one_or_none()
    if key is None:
        raise PlatformError("not_found", f"There is no key {quoted(key_id)}.", "id")
    if key.status == "active":
        key.status, key.revoked_at = "revoked", now
    return key
