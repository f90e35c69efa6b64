"""Plans: what tenants may do who say nothing of their own. A plan has figures for every dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lorikeet_platform.audit.service import record
from lorikeet_platform.auth.notices import Notice, announce
from lorikeet_platform.db.conflicts import add_or_raise
from lorikeet_platform.db.tables import Plan, PlanLimit, Tenant
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.limits.effective import DIMENSIONS, Figures
from lorikeet_platform.limits.service import Changes, Pair, as_details, changes_to, checked, write
from lorikeet_platform.limits.standard import STANDARD_PLAN
from lorikeet_platform.limits.stored import plan_figures

PLAN_PATTERN: Final = r"^[a-z0-9][a-z0-9-]{0,39}$"


@dataclass(frozen=True, slots=True)
class PlanSummary:
    plan: Plan
    figures: Figures
    n_tenants: int


def list_plans(work: Session) -> list[PlanSummary]:
    """All plans by id."""
    return [_summary(work, plan) for plan in work.scalars(select(Plan).order_by(Plan.id))]


def get_plan(work: Session, plan_id: str) -> PlanSummary:
    """Raises PlatformError(not_found)."""
    return _summary(work, _find(work, plan_id))


def create_plan(
    work: Session, plan_id: str, display_name: str | None, changes: Changes, *, actor: str, now: int
) -> PlanSummary:
    """A plan like `standard` but for `changes`.

    Raises:
        PlatformError: name_conflict, invalid_value.
    """
    figures: dict[str, Pair] = {**plan_figures(work, STANDARD_PLAN)} | _checked(changes)
    plan = Plan(id=plan_id, display_name=display_name or plan_id, created_at=now)
    add_or_raise(work, plan, PlatformError("name_conflict", f"A plan {quoted(plan_id)} exists already.", "id"))
    for dimension, figure in figures.items():
        write(work, PlanLimit(plan_id=plan_id, dimension=dimension), figure, actor=actor, now=now)
    work.flush()
    record(
        work,
        tenant_id=None,
        actor=actor,
        action="plan.create",
        subject=plan_id,
        now=now,
        details=as_details(changes),
    )
    return _summary(work, plan)


def set_plan_limits(work: Session, plan_id: str, changes: Changes, *, actor: str, now: int) -> PlanSummary:
    """Change a plan, and with it what its tenants may do; every process hears of it.

    Raises:
        PlatformError: not_found, invalid_value.
    """
    plan = _find(work, plan_id, for_update=True)
    changed = changes_to(plan_figures(work, plan_id), _checked(changes))
    if not changed:
        return _summary(work, plan)
    for dimension, figures in changed.items():
        row = work.get(PlanLimit, (plan_id, dimension)) or PlanLimit(plan_id=plan_id, dimension=dimension)
        write(work, row, figures, actor=actor, now=now)
    work.flush()
    record(
        work,
        tenant_id=None,
        actor=actor,
        action="plan.limits",
        subject=plan_id,
        now=now,
        details=as_details(changed),
    )
    for tenant_id in _tenants_of(work, plan_id):
        announce(work, Notice(tenant_id, None, "changed", now))
    return _summary(work, plan)


def _find(work: Session, plan_id: str, *, for_update: bool = False) -> Plan:
    plan = work.get(Plan, plan_id, with_for_update={"key_share": True} if for_update else None)
    if plan is None:
        raise PlatformError("not_found", f"There is no plan {quoted(plan_id)}.", "id")
    return plan


def _checked(changes: Changes) -> dict[str, Pair]:
    """Raises PlatformError(invalid_value), also for a dimension that the plan would lack."""
    figures = {name: figure for name, figure in checked(changes, DIMENSIONS).items() if figure is not None}
    for name in changes:
        if name not in figures:
            raise PlatformError("invalid_value", f"A plan has figures for {name}.", f"limits.{name}")
    return figures


def _tenants_of(work: Session, plan_id: str) -> Sequence[str]:
    return work.scalars(select(Tenant.id).where(Tenant.plan_id == plan_id)).all()


def _summary(work: Session, plan: Plan) -> PlanSummary:
    n_tenants = work.scalar(select(func.count()).select_from(Tenant).where(Tenant.plan_id == plan.id))
    return PlanSummary(plan, plan_figures(work, plan.id), n_tenants or 0)
