"""Rules and queries of tenants."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lorikeet_platform.db.conflicts import add_or_raise
from lorikeet_platform.db.tables import Adapter, ApiKey, Tenant
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.ids import new_id

SLUG_PATTERN = r"^[a-z0-9][a-z0-9-]{1,38}[a-z0-9]$"
MAX_WEIGHT = 1000.0


@dataclass(frozen=True, slots=True)
class TenantSummary:
    tenant: Tenant
    n_adapters: int
    n_keys: int  # active ones


def create_tenant(work: Session, *, slug: str, display_name: str | None, now: int, weight: float = 1.0) -> Tenant:
    """A new active tenant with its own cache salt; `weight` is its share of the engine, relative to other tenants.

    Raises:
        PlatformError: name_conflict.
    """
    tenant = Tenant(
        id=new_id("ten"),
        slug=slug,
        display_name=display_name or slug,
        weight=weight,
        cache_salt=secrets.token_bytes(32),
        created_at=now,
    )
    add_or_raise(work, tenant, PlatformError("name_conflict", f"A tenant {quoted(slug)} exists already.", "slug"))
    return tenant


def get_tenant(work: Session, slug: str) -> Tenant:
    """Raises PlatformError(not_found)."""
    tenant = work.scalars(select(Tenant).where(Tenant.slug == slug)).one_or_none()
    if tenant is None:
        raise PlatformError("not_found", f"There is no tenant {quoted(slug)}.", "slug")
    return tenant


def list_tenants(work: Session) -> list[TenantSummary]:
    """All tenants by slug."""
    adapters = _count_by_tenant(work, Adapter)
    keys = _count_by_tenant(work, ApiKey)
    tenants = work.scalars(select(Tenant).order_by(Tenant.slug))
    return [TenantSummary(tenant, adapters.get(tenant.id, 0), keys.get(tenant.id, 0)) for tenant in tenants]


def _count_by_tenant(work: Session, table: type[Adapter] | type[ApiKey]) -> dict[str, int]:
    statement = select(table.tenant_id, func.count()).group_by(table.tenant_id)
    if table is ApiKey:
        statement = statement.where(ApiKey.status == "active")
    return {row[0]: row[1] for row in work.execute(statement)}
