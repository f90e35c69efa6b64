"""How much of the month's tokens is used: the budgets of a tenant and of a key's lineage, as they stand."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import BudgetCounter
from lorikeet_platform.limits.effective import EffectiveLimits
from lorikeet_platform.usage.periods import month_start, next_month_start


@dataclass(frozen=True, slots=True)
class Budget:
    limit: int
    settled: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Month:
    starts_at: int
    resets_at: int
    tenant: Budget
    key: Budget


def month_of(work: Session, tenant_id: str, subject_id: str, limits: EffectiveLimits, now: int) -> Month:
    """The month that `now` lies in."""
    starts_at = month_start(now)
    mine = select(BudgetCounter).where(
        BudgetCounter.tenant_id == tenant_id,
        BudgetCounter.subject_id.in_((tenant_id, subject_id)),
        BudgetCounter.period_start == starts_at,
    )
    rows = {row.subject_id: row for row in work.scalars(mine)}

    def budget(subject: str, limit: int) -> Budget:
        row = rows.get(subject)
        return Budget(limit, 0, 0) if row is None else Budget(limit, row.settled, row.reserved)

    return Month(
        starts_at,
        next_month_start(now),
        budget(tenant_id, limits.of_tenant["monthly_tokens"].value),
        budget(subject_id, limits["monthly_tokens"].value),
    )
