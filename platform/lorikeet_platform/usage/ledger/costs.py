"""Costs beside the bill: what the engine says that requests took of it, for records of any tenants, in one go.

A cost is written once and stays. It marks its hour to be rolled up again, because the record that it belongs to was
there before it. Nothing that is paid for depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from sqlalchemy import (
    ColumnElement,
    Float,
    Insert,
    String,
    Table,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from lorikeet_engine.client import RequestCounts
from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.clock import HOUR
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import UsageCost, UsageRecord
from lorikeet_platform.usage.ledger.parts import DIRTY, RECORDS, is_postgres
from lorikeet_platform.usage.periods import bucket_start

TABLE: Final = cast(Table, UsageCost.__table__)
_KEY: Final = ("tenant_id", "request_id")
_COLUMNS: Final = (*_KEY, *COSTS)
_BUCKET: Final = ("tenant_id", "granularity", "bucket_start")
_ONE_MORE: Final = {"marks": DIRTY.c.marks + 1}


def record_costs(db: Database, found: Iterable[RequestCounts]) -> None:
    """Write down what is known; of requests without a record, such as the platform's own, nothing is kept.

    Raises:
        SQLAlchemyError: nothing was written.
    """
    rows = [
        (each.tenant, each.request_id, *(getattr(each.cost, name) for name in COSTS))
        for each in found
        if each.cost is not None
    ]
    if not rows:
        return
    with db.platform.unit_of_work() as work:
        if is_postgres(work):
            columns = zip(_COLUMNS, zip(*rows, strict=True), strict=True)
            work.execute(_AT_ONCE, {name: list(values) for name, values in columns})
        else:
            _write(work, rows)


def is_cost_of_record() -> ColumnElement[bool]:
    """For an outer join of records with costs: one may not be there yet, or never come."""
    return and_(UsageCost.tenant_id == UsageRecord.tenant_id, UsageCost.request_id == UsageRecord.request_id)


def is_without_cost() -> ColumnElement[int]:
    """1 for a joined record that used tokens and has no cost; what used none was refused, or left before it began."""
    return case((and_(UsageCost.request_id.is_(None), UsageRecord.completion_tokens > 0), 1), else_=0)


def _write(work: Session, rows: Sequence[tuple[Any, ...]]) -> None:
    """SQLite, which has one writer, takes part after part."""
    keys = [row[:2] for row in rows]
    is_new = ~select(TABLE.c.request_id).where(*(TABLE.c[name] == RECORDS.c[name] for name in _KEY)).exists()
    statement = select(*(RECORDS.c[name] for name in _KEY), RECORDS.c.admitted_at)
    records = work.execute(statement.where(tuple_(*(RECORDS.c[name] for name in _KEY)).in_(keys), is_new)).all()
    hours = {(row[0], row[1]): bucket_start(row[2], "hour") for row in records}
    if new := [dict(zip(_COLUMNS, row, strict=True)) for row in rows if row[:2] in hours]:
        work.execute(insert(TABLE), new)
    for tenant_id, hour in sorted({(key[0], hour) for key, hour in hours.items()}):
        mark = sqlite.insert(DIRTY).values(tenant_id=tenant_id, granularity="hour", bucket_start=hour, marks=1)
        work.execute(mark.on_conflict_do_update(index_elements=_BUCKET, set_=_ONE_MORE))


def _writing_at_once() -> Insert:
    """Marks are made in one order, so that two who write do not wait for each other."""
    arrays = (bindparam(name, type_=ARRAY(String() if name in _KEY else Float())) for name in _COLUMNS)
    given = func.unnest(*arrays).table_valued(*_COLUMNS, name="given").render_derived()
    mine = [given.c[name] == RECORDS.c[name] for name in _KEY]
    known = select(*(given.c[name] for name in _COLUMNS)).where(*mine)
    writing = postgresql.insert(TABLE).from_select(list(_COLUMNS), known, include_defaults=False)
    written = writing.on_conflict_do_nothing().returning(*(TABLE.c[name] for name in _KEY)).cte("written")
    hour = RECORDS.c.admitted_at - RECORDS.c.admitted_at % HOUR
    marks = (
        select(written.c.tenant_id, literal("hour"), hour.label("hour"), literal(1))
        .where(*(written.c[name] == RECORDS.c[name] for name in _KEY))
        .distinct()
        .order_by(written.c.tenant_id, hour)
    )
    marking = postgresql.insert(DIRTY).from_select([*_BUCKET, "marks"], marks, include_defaults=False)
    return marking.on_conflict_do_update(index_elements=_BUCKET, set_=_ONE_MORE)


_AT_ONCE: Final = _writing_at_once()
