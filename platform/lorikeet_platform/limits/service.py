"""Setting limits, and showing what is in force with who said so.

A change names dimensions; what it does not name stays as it is. Who may set what is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import record
from lorikeet_platform.auth.notices import Notice, announce
from lorikeet_platform.db.locks import lock_tenant
from lorikeet_platform.db.tables import ApiKey, KeyLimit, PlanLimit, Tenant, TenantLimit
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.limits.effective import (
    COUNTED_BY_KEY,
    DIMENSIONS,
    WITH_BURST,
    Dimension,
    EffectiveLimits,
    Figures,
)
from lorikeet_platform.limits.stored import (
    key_figures,
    limits_of_key,
    limits_of_tenant,
    plan_figures,
    tenant_figures,
)

# There is no unlimited, only large numbers: this one is exact in JavaScript and in Redis's Lua.
HIGHEST: Final = 10**15

Row = PlanLimit | TenantLimit | KeyLimit
Pair = tuple[int, int | None]  # value and burst; no burst = a minute's worth
Changes = Mapping[str, Pair | None]  # by dimension; None = no limit of its own any more


@dataclass(frozen=True, slots=True)
class LimitsInForce:
    """What holds for a subject: all dimensions, with what was set for itself and what its plan says."""

    effective: EffectiveLimits
    own: Figures
    plan: Figures


def checked(changes: Changes, dimensions: Collection[str]) -> Changes:
    """`changes`, if each is one of `dimensions` and makes sense.

    Raises:
        PlatformError: invalid_value with the dimension as its param.
    """
    for dimension, figures in changes.items():
        param = f"limits.{dimension}"[:100]
        if dimension not in dimensions:
            raise PlatformError("invalid_value", f"{quoted(dimension)} is not a limit that can be set here.", param)
        if figures is None or figures[1] is None:
            continue
        if dimension not in WITH_BURST:
            raise PlatformError("invalid_value", f"{dimension} has no burst.", f"{param}.burst")
        if figures[1] > figures[0]:
            raise PlatformError("invalid_value", f"{dimension}: the burst is a part of the value.", f"{param}.burst")
    return changes


def tenant_limits(work: Session, tenant: Tenant) -> LimitsInForce:
    return LimitsInForce(
        limits_of_tenant(work, tenant), tenant_figures(work, tenant.id), plan_figures(work, tenant.plan_id)
    )


def set_tenant_limits(work: Session, tenant_id: str, changes: Changes, *, actor: str, now: int) -> Tenant:
    """Set limits of the tenant as a whole, for every process to know.

    Raises:
        PlatformError: invalid_value.
    """
    tenant = lock_tenant(work, tenant_id)
    changed = changes_to(tenant_figures(work, tenant_id), checked(changes, DIMENSIONS))
    if not changed:
        return tenant
    for dimension, figures in changed.items():
        row = work.get(TenantLimit, (tenant_id, dimension)) or TenantLimit(tenant_id=tenant_id, dimension=dimension)
        write(work, row, figures, actor=actor, now=now)
    work.flush()
    record(
        work,
        tenant_id=tenant_id,
        actor=actor,
        action="tenant.limits",
        subject=tenant.slug,
        now=now,
        details=as_details(changed),
    )
    announce(work, Notice(tenant_id, None, "changed", now))
    return tenant


def key_limits(work: Session, tenant: Tenant, key: ApiKey) -> LimitsInForce:
    return LimitsInForce(
        limits_of_key(work, tenant, key.subject_id),
        key_figures(work, tenant.id, key.subject_id),
        plan_figures(work, tenant.plan_id),
    )


def set_key_limits(work: Session, key: ApiKey, changes: Changes, *, actor: str, now: int) -> None:
    """Set limits of a key's whole lineage, for every process to know; the caller holds the tenant's row.

    Without that, two that set the first limit of one lineage through two of its keys would collide.

    Raises:
        PlatformError: invalid_value.
    """
    changed = changes_to(key_figures(work, key.tenant_id, key.subject_id), checked(changes, COUNTED_BY_KEY))
    if not changed:
        return
    write_key_limits(work, key, changed, actor=actor, now=now)
    record(
        work,
        tenant_id=key.tenant_id,
        actor=actor,
        action="key.limits",
        subject=key.id,
        now=now,
        details=as_details(changed),
    )
    announce(work, Notice(key.tenant_id, key.subject_id, "changed", now))


def write_key_limits(work: Session, key: ApiKey, changes: Changes, *, actor: str, now: int) -> None:
    """The rows alone, for a key that nobody can have asked for yet. Raises PlatformError(invalid_value)."""
    for dimension, figures in checked(changes, COUNTED_BY_KEY).items():
        row = work.get(KeyLimit, (key.tenant_id, key.subject_id, dimension)) or KeyLimit(
            tenant_id=key.tenant_id, subject_id=key.subject_id, dimension=dimension
        )
        write(work, row, figures, actor=actor, now=now)
    work.flush()


def changes_to(own: Figures, changes: Changes) -> Changes:
    """What of `changes` is not as it is already."""
    return {name: figures for name, figures in changes.items() if own.get(cast(Dimension, name)) != figures}


def write(work: Session, row: Row, figures: Pair | None, *, actor: str, now: int) -> None:
    """Make `row` say `figures`, be it new or stored; None = it goes."""
    if figures is not None:
        row.value, row.burst = figures
        row.updated_by, row.updated_at = actor, now
        work.add(row)
    elif row in work:
        work.delete(row)


def as_details(changes: Changes) -> dict[str, Any]:
    """For the audit log: value and burst by dimension."""
    return {name: None if figures is None else list(figures) for name, figures in changes.items()}
