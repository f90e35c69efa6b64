"""Opening a record: it exists only together with its reservation in both budgets, the tenant's and the key's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Insert, Update, insert, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from lorikeet_platform.usage.ledger.parts import (
    COUNTERS,
    RECORDS,
    changing,
    given,
    is_postgres,
    parameters,
    size,
    something_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A record as it begins: its columns.

    Attributes:
        est_tokens: what is reserved until it is settled.
        period_start: the month whose budgets it is of, also when it ends in the next.
    """

    tenant_id: str
    request_id: str
    key_id: str
    subject_id: str
    gateway_id: str | None
    route: str
    base_model: str
    adapter_id: str | None
    version_id: str | None
    stream: bool
    n: int
    est_tokens: int
    period_start: int
    admitted_at: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """A budget that cannot hold a reservation."""

    is_of_tenant: bool
    limit: int
    left: int


class NotReserved(Exception):
    """No room in a budget, or no counter yet; the transaction is to be rolled back."""


def open_record(work: Session, opening: Opening, *, limit_of_tenant: int, limit_of_key: int) -> None:
    """Raises NotReserved."""
    values = parameters({name: getattr(opening, name) for name in _COLUMNS}) | {
        "limit_of_tenant": limit_of_tenant,
        "limit_of_key": limit_of_key,
    }
    steps: tuple[Any, ...] = (_OPEN_AT_ONCE,) if is_postgres(work) else (_RESERVE_OF_TENANT, _RESERVE_OF_KEY, _OPEN)
    for statement in steps:
        if work.execute(statement, values).one_or_none() is None:
            raise NotReserved


def find_shortage(work: Session, opening: Opening, *, limit_of_tenant: int, limit_of_key: int) -> Shortage | None:
    """Which budget has no room; counters that are missing are made. None: it is worth another try."""
    subjects = (opening.tenant_id, opening.subject_id)
    mine = (COUNTERS.c.tenant_id == opening.tenant_id, COUNTERS.c.period_start == opening.period_start)
    figures = select(COUNTERS.c.subject_id, COUNTERS.c.settled + COUNTERS.c.reserved).where(*mine)
    rows = work.execute(figures.where(COUNTERS.c.subject_id.in_(subjects)))
    used: dict[str, int] = {row[0]: row[1] for row in rows}
    missing = [subject for subject in subjects if subject not in used]
    if missing:
        _make_counters(work, opening, missing)
    for subject, limit in zip(subjects, (limit_of_tenant, limit_of_key), strict=True):
        left = limit - used.get(subject, 0)
        if opening.est_tokens > left:
            return Shortage(subject == opening.tenant_id, limit, max(0, left))
    return None


def _make_counters(work: Session, opening: Opening, subjects: list[str]) -> None:
    """Those that another process makes at the same time are as good."""
    made = (postgresql.insert if is_postgres(work) else sqlite.insert)(COUNTERS)
    rows = [
        {
            "tenant_id": opening.tenant_id,
            "subject_id": subject,
            "period_start": opening.period_start,
            "reserved": 0,
            "settled": 0,
        }
        for subject in subjects
    ]
    work.execute(made.values(rows).on_conflict_do_nothing())


def _reserving(subject: str, limit: str) -> Update:
    after = COUNTERS.c.settled + COUNTERS.c.reserved + given("est_tokens")
    change = changing(given(subject), given("tenant_id"), given("period_start"))
    return change.where(after <= size(limit)).values(reserved=COUNTERS.c.reserved + given("est_tokens"))


_BEGINNING: Final[dict[str, Any]] = {
    "state": literal("open"),
    "prompt_tokens": literal(0),
    "completion_tokens": literal(0),
    "cached_tokens": literal(0),
}
_COLUMNS: Final = tuple(Opening.__dataclass_fields__)
_RESERVE_OF_TENANT: Final = _reserving("tenant_id", "limit_of_tenant")
_RESERVE_OF_KEY: Final = _reserving("subject_id", "limit_of_key")
_ROW: Final = {name: given(name) for name in _COLUMNS} | _BEGINNING
_OPEN: Final = insert(RECORDS).values(_ROW).returning(RECORDS.c.request_id)


def _opening_at_once() -> Insert:
    of_tenant = _RESERVE_OF_TENANT.cte("of_tenant")
    of_key = _RESERVE_OF_KEY.where(something_in(of_tenant)).cte("of_key")
    row = select(*_ROW.values()).where(something_in(of_key))
    return insert(RECORDS).from_select(list(_ROW), row, include_defaults=False).returning(RECORDS.c.request_id)


_OPEN_AT_ONCE: Final = _opening_at_once()
