"""Who is calling, once verified."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Principal:
    """A tenant's key.

    Attributes:
        weight: the tenant's share of the engine, relative to other tenants.
        cache_salt: the tenant's secret for the prefix cache; never shown.
    """

    tenant_id: str
    tenant_slug: str
    tenant_status: str
    key_id: str
    expires_at: int | None
    weight: float
    cache_salt: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Administrator:
    """Somebody on the administration port. `session_hash` is None for the CLI's token."""

    role: str
    session_hash: bytes | None
