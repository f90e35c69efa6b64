"""The ledger's books against each other: records, budgets and roll-ups must say the same.

    Σ settled records = Σ budgets' settled      for every tenant and lineage of keys, month by month
    Σ open estimates  = Σ budgets' reserved
    Σ settled records = Σ roll-ups              for every bucket that is not marked to be computed again

Each sum counts one side up and the other down: what is not zero in the end is a mismatch; of costs, which are no whole
numbers, what is more than adding up in another order explains. Each is one statement for one tenant: it sees one moment
of its books, and reads no more of the records than that tenant's last two months.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Subquery,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import Session

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import BudgetCounter, DirtyBucket, Tenant, UsageCost, UsageRecord, UsageRollup
from lorikeet_platform.usage.ledger.costs import is_cost_of_record, is_without_cost
from lorikeet_platform.usage.periods import LENGTHS, Granularity, month_start

log = structlog.get_logger(__name__)

NAME: Final = "usage.check"
_ADDED_UP: Final = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "requests_without_cost")
# Of all that was added up: the most that rounding can make of some millions of requests, each of which rounds once.
_ROUNDING: Final = 1e-9
SHOWN: Final = 20  # mismatches of one tenant's book that reach the log


class LedgerCheck:
    """Compares this month's and last month's books; what they disagree on is for people to look at."""

    def __init__(self, db: Database, clock: Clock = now_us) -> None:
        self._db, self._clock = db, clock

    def run(self) -> Mapping[str, Any]:
        since = month_start(month_start(self._clock()) - 1)
        with self._db.platform.read() as work:
            tenants = work.scalars(select(Tenant.id).order_by(Tenant.id)).all()
        budgets = rollups = 0
        for tenant_id in tenants:
            with self._db.tenant(tenant_id).read() as work:
                budgets += _found(work, _budgets(tenant_id, since), "budget")
                for granularity in LENGTHS:
                    rollups += _found(work, _rollups(tenant_id, since, granularity), granularity)
        return {"mismatches": budgets + rollups, "budgets": budgets, "rollups": rollups}


def _found(work: Session, statement: Select[*tuple[Any, ...]], book: str) -> int:
    rows = work.execute(statement).all()
    for row in rows[:SHOWN]:
        log.error("the ledger's books disagree", book=book, difference=dict(row._mapping))
    return len(rows)


def _budgets(tenant_id: str, since: int) -> Select[*tuple[Any, ...]]:
    record, counter = UsageRecord, BudgetCounter
    billed = case((record.state == "settled", record.prompt_tokens + record.completion_tokens), else_=0)
    held = case((record.state == "open", record.est_tokens), else_=0)
    # A month begins before all that is admitted in it; that is what the index goes by.
    mine = (record.tenant_id == tenant_id, record.admitted_at >= since, record.period_start >= since)
    sides = [
        select(
            record.tenant_id.label("tenant_id"),
            subject.label("subject_id"),
            record.period_start.label("period_start"),
            billed.label("settled"),
            held.label("reserved"),
        ).where(*mine)
        for subject in (record.tenant_id, record.subject_id)
    ]
    other = select(counter.tenant_id, counter.subject_id, counter.period_start, -counter.settled, -counter.reserved)
    theirs = other.where(counter.tenant_id == tenant_id, counter.period_start >= since)
    both = union_all(*sides, theirs).subquery()
    settled, reserved = (cast(func.sum(both.c[name]), BigInteger) for name in ("settled", "reserved"))
    group = (both.c.tenant_id, both.c.subject_id, both.c.period_start)
    return (
        select(*group, settled.label("settled"), reserved.label("reserved"))
        .group_by(*group)
        .having(or_(settled != 0, reserved != 0))
    )


def _rollups(tenant_id: str, since: int, granularity: Granularity) -> Select[*tuple[Any, ...]]:
    record, rollup = UsageRecord, UsageRollup
    start = record.admitted_at - record.admitted_at % literal(LENGTHS[granularity], BigInteger())
    of_records = select(
        record.tenant_id.label("tenant_id"),
        start.label("bucket_start"),
        literal(1).label("requests"),
        record.prompt_tokens.label("prompt_tokens"),
        record.cached_tokens.label("cached_tokens"),
        record.completion_tokens.label("completion_tokens"),
        is_without_cost().label("requests_without_cost"),
        *(func.coalesce(getattr(UsageCost, name), 0.0).label(name) for name in COSTS),
    )
    of_records = of_records.outerjoin(UsageCost, is_cost_of_record()).where(
        record.tenant_id == tenant_id, record.state == "settled", record.admitted_at >= since
    )
    figures = tuple(getattr(rollup, name) for name in (*_ADDED_UP, *COSTS))
    of_rollups = select(rollup.tenant_id, rollup.bucket_start, *(-figure for figure in figures)).where(
        rollup.tenant_id == tenant_id, rollup.granularity == granularity, rollup.bucket_start >= since
    )
    both = union_all(of_records, of_rollups).subquery()
    sums: dict[str, ColumnElement[Any]] = {name: cast(func.sum(both.c[name]), BigInteger) for name in _ADDED_UP}
    sums |= {name: _more_than_rounding(both.c[name]) for name in COSTS}
    group = (both.c.tenant_id, both.c.bucket_start)
    named = (figure.label(name) for name, figure in sums.items())
    is_off = or_(*(figure != 0 for figure in sums.values()))
    differing = select(*group, *named).group_by(*group).having(is_off).subquery()
    return select(differing).where(~_is_marked(differing, granularity))


def _more_than_rounding(figure: ColumnElement[float]) -> ColumnElement[float]:
    """The sum, or 0 where it is nothing beside what was counted up and down."""
    total = func.sum(figure)
    return case((func.abs(total) > _ROUNDING * func.sum(func.abs(figure)), total), else_=0.0)


def _is_marked(bucket: Subquery, granularity: Granularity) -> ColumnElement[bool]:
    """A day, also when one of its hours is."""
    start = bucket.c.bucket_start
    within = and_(DirtyBucket.bucket_start >= start, DirtyBucket.bucket_start < start + LENGTHS[granularity])
    return exists().where(DirtyBucket.tenant_id == bucket.c.tenant_id, within)
