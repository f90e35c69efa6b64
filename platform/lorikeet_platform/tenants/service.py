"""Rules and queries of tenants. What is changed of one is told to every process."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import Action, record
from lorikeet_platform.auth.actor import ADMINISTRATOR
from lorikeet_platform.auth.notices import Notice, Reason, announce
from lorikeet_platform.db.conflicts import add_or_raise
from lorikeet_platform.db.tables import Adapter, ApiKey, Plan, Tenant
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.ids import new_id
from lorikeet_platform.limits.standard import STANDARD_PLAN

SLUG_PATTERN = r"^[a-z0-9][a-z0-9-]{1,38}[a-z0-9]$"
MAX_WEIGHT = 1000.0


@dataclass(frozen=True, slots=True)
class TenantSummary:
    tenant: Tenant
    n_adapters: int
    n_keys: int  # active ones


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantChange:
    """What is to be another than it is; None = as it is."""

    display_name: str | None = None
    weight: float | None = None
    plan: str | None = None
    keys_make_keys: bool | None = None


def create_tenant(
    work: Session,
    *,
    slug: str,
    display_name: str | None,
    now: int,
    weight: float = 1.0,
    plan: str = STANDARD_PLAN,
    keys_make_keys: bool = False,
) -> Tenant:
    """A new active tenant with its own cache salt; `weight` is its share of the engine, relative to other tenants.

    Raises:
        PlatformError: name_conflict, invalid_value for a plan that does not exist.
    """
    _check_plan(work, plan)
    tenant = Tenant(
        id=new_id("ten"),
        slug=slug,
        display_name=display_name or slug,
        weight=weight,
        plan_id=plan,
        keys_make_keys=keys_make_keys,
        cache_salt=secrets.token_bytes(32),
        created_at=now,
    )
    add_or_raise(work, tenant, PlatformError("name_conflict", f"A tenant {quoted(slug)} exists already.", "slug"))
    details = {"display_name": tenant.display_name, "weight": weight, "plan": plan, "keys_make_keys": keys_make_keys}
    _record(work, tenant, "tenant.create", now, details)
    return tenant


def get_tenant(work: Session, slug: str, *, for_update: bool = False) -> Tenant:
    """Raises PlatformError(not_found)."""
    mine = select(Tenant).where(Tenant.slug == slug)
    if for_update:
        mine = mine.with_for_update(key_share=True)
    tenant = work.scalars(mine, execution_options={"populate_existing": for_update}).one_or_none()
    if tenant is None:
        raise PlatformError("not_found", f"There is no tenant {quoted(slug)}.", "slug")
    return tenant


def update_tenant(work: Session, slug: str, change: TenantChange, now: int) -> Tenant:
    """Raises PlatformError: not_found, invalid_value for a plan that does not exist."""
    tenant = get_tenant(work, slug, for_update=True)
    if change.plan is not None:
        _check_plan(work, change.plan)
    given = {
        "display_name": change.display_name,
        "weight": change.weight,
        "plan_id": change.plan,
        "keys_make_keys": change.keys_make_keys,
    }
    changed = {name: value for name, value in given.items() if value is not None and getattr(tenant, name) != value}
    if changed:
        for name, value in changed.items():
            setattr(tenant, name, value)
        work.flush()
        details = {"plan" if name == "plan_id" else name: value for name, value in changed.items()}
        _record(work, tenant, "tenant.update", now, details)
        _announce(work, tenant, "changed", now)
    return tenant


def suspend_tenant(work: Session, slug: str, now: int, reason: str | None = None) -> Tenant:
    """Refuse the tenant's requests and end its running answers; a second time changes nothing.

    Raises:
        PlatformError: not_found.
    """
    tenant = get_tenant(work, slug, for_update=True)
    if tenant.status == "active":
        tenant.status, tenant.suspended_at = "suspended", now
        work.flush()
        _record(work, tenant, "tenant.suspend", now, {"reason": reason})
        _announce(work, tenant, "tenant_suspended", now)
    return tenant


def resume_tenant(work: Session, slug: str, now: int) -> Tenant:
    """Serve the tenant again; a second time changes nothing.

    Raises:
        PlatformError: not_found.
    """
    tenant = get_tenant(work, slug, for_update=True)
    if tenant.status == "suspended":
        tenant.status, tenant.suspended_at = "active", None
        work.flush()
        _record(work, tenant, "tenant.resume", now, {})
        _announce(work, tenant, "changed", now)
    return tenant


def list_tenants(work: Session) -> list[TenantSummary]:
    """All tenants by slug."""
    adapters = _count_by_tenant(work, Adapter)
    keys = _count_by_tenant(work, ApiKey)
    tenants = work.scalars(select(Tenant).order_by(Tenant.slug))
    return [TenantSummary(tenant, adapters.get(tenant.id, 0), keys.get(tenant.id, 0)) for tenant in tenants]


def summary_of(work: Session, tenant: Tenant) -> TenantSummary:
    adapters = _count_by_tenant(work, Adapter, tenant.id)
    keys = _count_by_tenant(work, ApiKey, tenant.id)
    return TenantSummary(tenant, adapters.get(tenant.id, 0), keys.get(tenant.id, 0))


def _count_by_tenant(
    work: Session, table: type[Adapter] | type[ApiKey], tenant_id: str | None = None
) -> dict[str, int]:
    """Of all tenants, or of one."""
    statement = select(table.tenant_id, func.count()).where(table.status == "active").group_by(table.tenant_id)
    if tenant_id is not None:
        statement = statement.where(table.tenant_id == tenant_id)
    return {row[0]: row[1] for row in work.execute(statement)}


def _check_plan(work: Session, plan: str) -> None:
    if work.get(Plan, plan) is None:
        raise PlatformError("invalid_value", f"There is no plan {quoted(plan)}.", "plan")


def _record(work: Session, tenant: Tenant, action: Action, now: int, details: dict[str, Any]) -> None:
    record(
        work,
        tenant_id=tenant.id,
        actor=ADMINISTRATOR,
        action=action,
        subject=tenant.slug,
        now=now,
        details=details,
    )


def _announce(work: Session, tenant: Tenant, reason: Reason, now: int) -> None:
    announce(work, Notice(tenant.id, None, reason, now))
