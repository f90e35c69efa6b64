"""Settling a record: the first to say what a request used closes it, and moves its reservation into the bill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Row, Select, String, Update, bindparam, func, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from lorikeet_platform.clock import HOUR
from lorikeet_platform.usage.ledger.parts import (
    COUNTERS,
    DIRTY,
    RECORDS,
    changing,
    given,
    is_postgres,
    parameters,
    size,
    something_in,
)
from lorikeet_platform.usage.periods import bucket_start

Outcome = Literal["ok", "client_cancelled", "server_error", "deadline", "revoked", "shed"]
SettledBy = Literal["gateway", "engine_outbox", "reaper"]
Verdict = Literal["settled", "already", "conflict", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a request used and how it ended.

    Attributes:
        answered_by: adapter and version, where they are not those that the record was opened for.
    """

    tenant_id: str
    request_id: str
    outcome: Outcome
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    settled_by: SettledBy
    settled_at: int
    first_token_at: int | None = None
    answered_by: tuple[str | None, str | None] | None = None


_FIELDS: Final = tuple(Settlement.__dataclass_fields__)


class LedgerBroken(Exception):
    """A record's counters are missing: it was not opened by `open_record`."""


def settle(work: Session, settlement: Settlement) -> Verdict:
    """Close the record; `settled` for the one call that did. Any other changes nothing, in any process.

    `already`: it was closed with these figures, or with figures that they bear out. `conflict`: with others.
    `unknown`: there is no such record; what asked the engine was nobody's to pay.

    Raises:
        LedgerBroken: the transaction is to be rolled back.
    """
    values = {name: getattr(settlement, name) for name in _FIELDS}
    answered_by = values.pop("answered_by")
    if answered_by is not None:
        values |= dict(zip(("adapter_id", "version_id"), answered_by, strict=True))
    given_values = parameters(values) | {"billed": settlement.prompt_tokens + settlement.completion_tokens}
    if is_postgres(work):
        closed = work.execute(_SETTLE_AT_ONCE[answered_by is not None], given_values).one_or_none()
        n_moved = None if closed is None else closed.n_moved
    else:
        closed = work.execute(_CLOSE[answered_by is not None], given_values).one_or_none()
        n_moved = None if closed is None else _move(work, closed, given_values)
    if n_moved is None:
        return _verdict_on(work, settlement)
    if n_moved != 2:
        raise LedgerBroken(settlement.request_id)
    return "settled"


def _move(work: Session, closed: Row[Any], values: dict[str, object]) -> int:
    """Both counters of a record that was closed in this transaction, and the hour's mark."""
    n_moved = 0
    for subject in (closed.tenant_id, closed.subject_id):
        change = {"subject": subject, "period": closed.period_start, "est": closed.est_tokens}
        n_moved += len(work.execute(_MOVE, values | change).all())
    mark = sqlite.insert(DIRTY).values(
        tenant_id=closed.tenant_id,
        granularity="hour",
        bucket_start=bucket_start(closed.admitted_at, "hour"),
        marks=1,
    )
    work.execute(mark.on_conflict_do_update(index_elements=_BUCKET, set_=_ONE_MORE))
    return n_moved


def _verdict_on(work: Session, settlement: Settlement) -> Verdict:
    mine = (RECORDS.c.tenant_id == settlement.tenant_id, RECORDS.c.request_id == settlement.request_id)
    first = work.execute(select(*_TOLD).where(*mine)).one_or_none()
    if first is None:
        return "unknown"
    then = (first.prompt_tokens, first.cached_tokens, first.completion_tokens)
    now = (settlement.prompt_tokens, settlement.cached_tokens, settlement.completion_tokens)
    agree = (
        then == now
        # A gateway bills what it delivered, an engine knows what it generated: that may be more, behind a stop string.
        or (first.settled_by == "gateway" != settlement.settled_by and _is_within(then, now))
        or (settlement.settled_by == "gateway" != first.settled_by and _is_within(now, then))
        or (_is_least(first.settled_by, first.outcome, then) and _bears_out(now, then))
        or (_is_least(settlement.settled_by, settlement.outcome, now) and _bears_out(then, now))
    )
    return "already" if agree else "conflict"


def _is_least(settled_by: str, outcome: str, figures: tuple[int, ...]) -> bool:
    """Whether these are the last figures that an engine noted before it was lost; it may have generated more."""
    return settled_by != "gateway" and outcome == "server_error" and figures[2] > 0


def _bears_out(used: tuple[int, ...], least: tuple[int, ...]) -> bool:
    """The prompt is whole in both."""
    return used[:2] == least[:2] and used[2] >= least[2]


def _is_within(delivered: tuple[int, ...], generated: tuple[int, ...]) -> bool:
    return all(less <= more for less, more in zip(delivered, generated, strict=True))


_TOLD: Final = (
    RECORDS.c.settled_by,
    RECORDS.c.outcome,
    RECORDS.c.prompt_tokens,
    RECORDS.c.cached_tokens,
    RECORDS.c.completion_tokens,
)
_BUCKET: Final = ["tenant_id", "granularity", "bucket_start"]
_ONE_MORE: Final = {"marks": DIRTY.c.marks + 1}
_CLOSED: Final = (
    "outcome",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "settled_by",
    "settled_at",
    "first_token_at",
)
_MODEL: Final = ("adapter_id", "version_id")


def _closing(columns: tuple[str, ...]) -> Update:
    return (
        update(RECORDS)
        .where(
            RECORDS.c.tenant_id == given("tenant_id"),
            RECORDS.c.request_id == given("request_id"),
            RECORDS.c.state == "open",
        )
        .values({"state": "settled"} | {name: given(name) for name in columns})
        .returning(
            RECORDS.c.tenant_id,
            RECORDS.c.subject_id,
            RECORDS.c.period_start,
            RECORDS.c.est_tokens,
            RECORDS.c.admitted_at,
        )
    )


def _moving(subject: ColumnElement[Any], tenant: Any, period: Any, est: Any) -> Update:
    change = {"reserved": COUNTERS.c.reserved - est, "settled": COUNTERS.c.settled + size("billed")}
    return changing(subject, tenant, period).values(change)


def _settling_at_once(columns: tuple[str, ...]) -> Select[Any]:
    """Answers with a row when the record was open: how many of its two counters were there to move."""
    closed = _closing(columns).cte("closed")
    place = (closed.c.tenant_id, closed.c.period_start, closed.c.est_tokens)
    of_tenant = _moving(closed.c.tenant_id, *place).cte("of_tenant")
    of_key = _moving(closed.c.subject_id, *place).where(something_in(of_tenant)).cte("of_key")
    hour = closed.c.admitted_at - closed.c.admitted_at % HOUR
    row = select(closed.c.tenant_id, literal("hour"), hour, literal(1)).where(something_in(of_key))
    mark = postgresql.insert(DIRTY).from_select([*_BUCKET, "marks"], row, include_defaults=False)
    marked = mark.on_conflict_do_update(index_elements=_BUCKET, set_=_ONE_MORE).returning(DIRTY.c.marks).cte("marked")
    n_of_tenant, n_of_key = (select(func.count()).select_from(part).scalar_subquery() for part in (of_tenant, of_key))
    return select(closed.c.tenant_id, (n_of_tenant + n_of_key).label("n_moved")).add_cte(marked)


_CLOSE: Final = {False: _closing(_CLOSED), True: _closing(_CLOSED + _MODEL)}
_SETTLE_AT_ONCE: Final = {False: _settling_at_once(_CLOSED), True: _settling_at_once(_CLOSED + _MODEL)}
_MOVE: Final = _moving(bindparam("subject", type_=String()), given("tenant_id"), size("period"), size("est"))
