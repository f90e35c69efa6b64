"""Roll-ups: whole hours out of records, whole days out of hours. Nothing is added to one: twice is as good as once.

A settlement marks its hour and so does a cost, an hour that was computed marks its day. A mark is taken away only if
it is the one that was there before the records were read: what was settled meanwhile has marked again, and the bucket
has its turn again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Table,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import DirtyBucket, UsageCost, UsageRecord, UsageRollup
from lorikeet_platform.usage.ledger.costs import is_cost_of_record, is_without_cost
from lorikeet_platform.usage.periods import LENGTHS, Granularity, bucket_start

NAME: Final = "usage.rollups"
BATCH: Final = 200
MAX_BUCKETS: Final = 5_000  # of one round
_NO_SYNC: Final = {"synchronize_session": False}


@dataclass(frozen=True, slots=True)
class Bucket:
    tenant_id: str
    granularity: Granularity
    start: int


class RollUps:
    """Computes the marked buckets, hours first."""

    def __init__(self, db: Database, clock: Clock = now_us) -> None:
        self._db, self._clock = db, clock

    def run(self) -> Mapping[str, Any]:
        """One round: what was marked before it began is computed, and the days of its hours."""
        computed = {"hours": 0, "days": 0}
        kinds: tuple[tuple[Granularity, str], ...] = (("hour", "hours"), ("day", "days"))
        for granularity, name in kinds:
            last: Bucket | None = None
            while computed[name] < MAX_BUCKETS and (buckets := self._marked(granularity, last)):
                for bucket in buckets:
                    with self._db.tenant(bucket.tenant_id).unit_of_work() as work:
                        compute(work, bucket, self._clock())
                computed[name] += len(buckets)
                last = buckets[-1]
        return computed

    def _marked(self, granularity: Granularity, last: Bucket | None) -> Sequence[Bucket]:
        """The next ones; those that were marked again in this round have their turn in another."""
        place = (DirtyBucket.bucket_start, DirtyBucket.tenant_id)
        statement = select(DirtyBucket).where(DirtyBucket.granularity == granularity).order_by(*place).limit(BATCH)
        if last is not None:
            statement = statement.where(_is_behind(last))
        with self._db.platform.read() as work:
            return [Bucket(row.tenant_id, granularity, row.bucket_start) for row in work.scalars(statement)]


def compute(work: Session, bucket: Bucket, now: int) -> None:
    """The bucket's roll-ups, new; nothing when it is not marked any more."""
    _alone(work, bucket)
    mine = (
        DirtyBucket.tenant_id == bucket.tenant_id,
        DirtyBucket.granularity == bucket.granularity,
        DirtyBucket.bucket_start == bucket.start,
    )
    marks = work.scalar(select(DirtyBucket.marks).where(*mine))
    if marks is None:
        return
    old = delete(UsageRollup).where(
        UsageRollup.tenant_id == bucket.tenant_id,
        UsageRollup.granularity == bucket.granularity,
        UsageRollup.bucket_start == bucket.start,
    )
    work.execute(old, execution_options=_NO_SYNC)
    _compute(work, bucket, now)
    if bucket.granularity == "hour":
        _mark_day(work, bucket)
    work.execute(delete(DirtyBucket).where(*mine, DirtyBucket.marks == marks), execution_options=_NO_SYNC)


def _alone(work: Session, bucket: Bucket) -> None:
    """Two who compute the same bucket would write over each other's figures; SQLite has one writer anyway."""
    if work.get_bind().dialect.name == "postgresql":
        name = f"{NAME}/{bucket.tenant_id}/{bucket.granularity}/{bucket.start}"
        work.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


def _mark_day(work: Session, hour: Bucket) -> None:
    insert_or = postgresql.insert if work.get_bind().dialect.name == "postgresql" else sqlite.insert
    mark = insert_or(DirtyBucket).values(
        tenant_id=hour.tenant_id, granularity="day", bucket_start=bucket_start(hour.start, "day"), marks=1
    )
    place = ["tenant_id", "granularity", "bucket_start"]
    work.execute(mark.on_conflict_do_update(index_elements=place, set_={"marks": DirtyBucket.marks + 1}))


_TABLE: Final = cast(Table, UsageRollup.__table__)
_GROUP: Final = ("key_id", "base_model", "version_id", "adapter_id")
_COLUMNS: Final = (
    *("tenant_id", "granularity", "bucket_start", "computed_at"),
    *_GROUP,
    *("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens", "requests_without_cost"),
    *COSTS,
)


def _compute(work: Session, bucket: Bucket, now: int) -> None:
    figures = _of_records(bucket) if bucket.granularity == "hour" else _of_hours(bucket)
    place = (literal(bucket.tenant_id), literal(bucket.granularity), _micros(bucket.start), _micros(now))
    row = figures.add_columns(*place)
    names = [*_COLUMNS[4:], *_COLUMNS[:4]]
    work.execute(insert(_TABLE).from_select(names, row, include_defaults=False))


def _of_records(bucket: Bucket) -> Select[*tuple[Any, ...]]:
    record = UsageRecord
    group = (
        record.key_id,
        record.base_model,
        func.coalesce(record.version_id, literal("")),
        func.coalesce(record.adapter_id, literal("")),
    )
    n_failed = func.sum(case((record.outcome == "ok", 0), else_=1))
    return (
        select(
            *group,
            func.count(),
            n_failed,
            func.sum(record.prompt_tokens),
            func.sum(record.cached_tokens),
            func.sum(record.completion_tokens),
            func.sum(is_without_cost()),
            *(func.coalesce(func.sum(getattr(UsageCost, name)), 0.0) for name in COSTS),
        )
        .outerjoin(UsageCost, is_cost_of_record())
        .where(record.tenant_id == bucket.tenant_id, record.state == "settled", *_within(record.admitted_at, bucket))
        .group_by(*group)
    )


def _of_hours(bucket: Bucket) -> Select[*tuple[Any, ...]]:
    hour = UsageRollup
    group = (hour.key_id, hour.base_model, hour.version_id, hour.adapter_id)
    figures = (hour.requests, hour.errors, hour.prompt_tokens, hour.cached_tokens, hour.completion_tokens)
    of_costs = (hour.requests_without_cost, *(getattr(hour, name) for name in COSTS))
    return (
        select(*group, *(func.sum(figure) for figure in (*figures, *of_costs)))
        .where(hour.tenant_id == bucket.tenant_id, hour.granularity == "hour", *_within(hour.bucket_start, bucket))
        .group_by(*group)
    )


def _within(at: Any, bucket: Bucket) -> tuple[ColumnElement[bool], ...]:
    return at >= bucket.start, at < bucket.start + LENGTHS[bucket.granularity]


def _micros(value: int) -> ColumnElement[int]:
    return literal(value, BigInteger())


def _is_behind(last: Bucket) -> ColumnElement[bool]:
    behind = and_(DirtyBucket.bucket_start == last.start, DirtyBucket.tenant_id > last.tenant_id)
    return or_(DirtyBucket.bucket_start > last.start, behind)
