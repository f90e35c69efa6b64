"""What the ledger's statements are made of: its tables, and parameters that are called after their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    FromClause,
    Table,
    Update,
    bindparam,
    exists,
    literal,
    select,
    update,
)
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import BudgetCounter, DirtyBucket, UsageRecord

RECORDS: Final = cast(Table, UsageRecord.__table__)
COUNTERS: Final = cast(Table, BudgetCounter.__table__)
DIRTY: Final = cast(Table, DirtyBucket.__table__)


def given(column: str) -> BindParameter[Any]:
    """A parameter for a record's column; the column's own name would be taken for an assignment to it."""
    return bindparam(f"given_{column}", type_=RECORDS.c[column].type)


def size(name: str) -> BindParameter[int]:
    return bindparam(name, type_=BigInteger())


def parameters(values: Mapping[str, object]) -> dict[str, object]:
    """`values` by the names that `given` has for them."""
    return {f"given_{column}": value for column, value in values.items()}


def changing(subject: ColumnElement[Any], tenant: ColumnElement[Any], period: ColumnElement[Any]) -> Update:
    """An update of one counter, that says so."""
    return (
        update(COUNTERS)
        .where(COUNTERS.c.tenant_id == tenant, COUNTERS.c.subject_id == subject, COUNTERS.c.period_start == period)
        .returning(COUNTERS.c.subject_id)
    )


def something_in(part: FromClause) -> ColumnElement[bool]:
    return exists(select(literal(1)).select_from(part))


def is_postgres(work: Session) -> bool:
    return work.get_bind().dialect.name == "postgresql"
