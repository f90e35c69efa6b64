"""Whether a key may still do what it was let in for: as the database has it and its tenant now, not as remembered."""

from __future__ import annotations

from sqlalchemy.orm import Session

from lorikeet_platform.auth.api_keys import invalid_api_key
from lorikeet_platform.db.tables import ApiKey, Tenant
from lorikeet_platform.errors import PlatformError


def is_live(key: ApiKey, now: int) -> bool:
    """Whether its secret opens anything."""
    return key.status == "active" and (key.expires_at is None or key.expires_at > now)


def key_now(work: Session, tenant: Tenant, key_id: str, now: int) -> ApiKey:
    """The key, read anew; `tenant` was.

    Raises:
        PlatformError: invalid_api_key, tenant_suspended.
    """
    key = work.get(ApiKey, (tenant.id, key_id), populate_existing=True)
    if key is None or not is_live(key, now):
        raise invalid_api_key()
    if tenant.status != "active":
        raise PlatformError("tenant_suspended")
    return key
