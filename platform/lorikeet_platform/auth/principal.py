"""Who is calling, once verified."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from lorikeet_platform.auth.scopes import Scope
from lorikeet_platform.limits.effective import EffectiveLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A tenant's key.

    Attributes:
        subject_id: the key's lineage: what rate buckets, budgets and limits of the key hang on, also after a rotation.
        allowed_adapters: ids of the adapters that the key may use; None = all, and the base model.
        networks: where the key may be used from; empty = anywhere.
        weight: the tenant's share of the engine, relative to other tenants.
        cache_salt: the tenant's secret for the prefix cache; never shown.
    """

    tenant_id: str
    tenant_slug: str
    tenant_status: str
    key_id: str
    subject_id: str
    scopes: frozenset[Scope]
    allowed_adapters: frozenset[str] | None
    networks: tuple[IPv4Network | IPv6Network, ...]
    limits: EffectiveLimits
    expires_at: int | None
    weight: float
    cache_salt: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Administrator:
    """Somebody on the administration port. `session_hash` is None for the CLI's token."""

    role: str
    session_hash: bytes | None
