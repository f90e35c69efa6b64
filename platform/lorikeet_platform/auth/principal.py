"""Who is calling, once verified."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A tenant's key."""

    tenant_id: str
    tenant_slug: str
    tenant_status: str
    key_id: str
    expires_at: int | None


@dataclass(frozen=True, slots=True)
class Administrator:
    """Somebody on the administration port. `session_hash` is None for the CLI's token."""

    role: str
    session_hash: bytes | None
