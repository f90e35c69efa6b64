"""Limits as the database has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import KeyLimit, PlanLimit, Tenant, TenantLimit
from lorikeet_platform.limits.effective import Dimension, EffectiveLimits, Figures, effective_limits


def limits_of_key(work: Session, tenant: Tenant, subject_id: str) -> EffectiveLimits:
    """What is in force for the keys of one lineage."""
    return effective_limits(
        plan_figures(work, tenant.plan_id), tenant_figures(work, tenant.id), key_figures(work, tenant.id, subject_id)
    )


def limits_of_tenant(work: Session, tenant: Tenant) -> EffectiveLimits:
    """What is in force for the tenant as a whole."""
    return effective_limits(plan_figures(work, tenant.plan_id), tenant_figures(work, tenant.id), {})


def plan_figures(work: Session, plan_id: str) -> Figures:
    return _figures(work, select(PlanLimit).where(PlanLimit.plan_id == plan_id))


def tenant_figures(work: Session, tenant_id: str) -> Figures:
    return _figures(work, select(TenantLimit).where(TenantLimit.tenant_id == tenant_id))


def key_figures(work: Session, tenant_id: str, subject_id: str) -> Figures:
    return _figures(work, select(KeyLimit).where(KeyLimit.tenant_id == tenant_id, KeyLimit.subject_id == subject_id))


def _figures(work: Session, statement: Select[Any]) -> Figures:
    rows: Iterable[PlanLimit | TenantLimit | KeyLimit] = work.scalars(statement)
    return {cast(Dimension, row.dimension): (row.value, row.burst) for row in rows}
