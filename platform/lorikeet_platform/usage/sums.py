"""Sums of usage by time and group, exact to the last settled record.

Roll-ups serve the buckets that are up to date. An hour that is marked to be computed again is summed up from its
records, its day from its hours; so a question costs the records of an hour or two, however long its time. Minutes are
summed up from records. One statement, which sees one moment of the books. Buckets lie on UTC and have one length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Select,
    String,
    Subquery,
    case,
    cast,
    func,
    literal,
    select,
    union_all,
)
from sqlalchemy.orm import Session, aliased

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.clock import HOUR, MINUTE, SECOND, unix_seconds
from lorikeet_platform.db.tables import (
    Adapter,
    AdapterVersion,
    ApiKey,
    DirtyBucket,
    Tenant,
    UsageCost,
    UsageRecord,
    UsageRollup,
)
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.usage.ledger.costs import is_cost_of_record, is_without_cost
from lorikeet_platform.usage.periods import DAY, LENGTHS

Width = Literal["1m", "1h", "1d"]
Group = Literal["tenant", "key", "model", "adapter", "version"]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)
COUNTS: Final = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens", "requests_without_cost")
FIGURES: Final = (*COUNTS, *COSTS)
LENGTH: Final[dict[Width, int]] = {"1m": MINUTE, "1h": HOUR, "1d": DAY}
LONGEST: Final[dict[Width, int]] = {"1m": DAY, "1h": 92 * DAY, "1d": 3_660 * DAY}
USUAL: Final[dict[Width, int]] = {"1m": HOUR, "1h": DAY, "1d": 30 * DAY}
LAST_SECOND: Final = 253_402_300_799  # of the year 9999
AT_ONCE: Final = 1_000  # rows fetched
# What a row says of each group.
COLUMNS: Final[dict[Group, tuple[str, ...]]] = {
    "tenant": ("tenant",),
    "key": ("key", "key_name"),
    "model": ("model",),
    "adapter": ("adapter", "adapter_id"),
    "version": ("version", "version_id"),
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be summed up: whole buckets, from the one that `start` lies in to the one that ends at `end` or after.

    Attributes:
        tenant_id: whose; None = everybody's.
        start, end: microseconds, both on a bucket's beginning.
    """

    tenant_id: str | None
    width: Width
    start: int
    end: int
    groups: tuple[Group, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        named = tuple(name for group in self.groups for name in COLUMNS[group])
        return ("bucket_start", *named, *FIGURES)


def question(
    *, tenant_id: str | None, width: Width, start: int | None, end: int | None, group_by: str | None, now: int
) -> Question:
    """What the parameters of a request ask for; times are unix seconds.

    Raises:
        PlatformError: invalid_value.
    """
    length = LENGTH[width]
    last = now + 1 if end is None else end * SECOND
    first = last - USUAL[width] if start is None else start * SECOND
    if first >= last:
        raise PlatformError("invalid_value", "end must lie behind start.", "end")
    if last - first > LONGEST[width]:
        days = LONGEST[width] // DAY
        raise PlatformError("invalid_value", f"With buckets of {width} the time may be {days} days at most.", "start")
    first, last = first - first % length, last + -last % length
    return Question(tenant_id, width, first, last, _groups(group_by, everybody=tenant_id is None))


def sums(work: Session, asked: Question) -> Iterator[Sequence[Any]]:
    """Rows of `asked.columns`, by time; buckets without a request are left out."""
    result = work.execute(_statement(asked), execution_options={"yield_per": AT_ONCE})
    for row in result:
        yield (unix_seconds(row[0]), *row[1:])


def _groups(group_by: str | None, *, everybody: bool) -> tuple[Group, ...]:
    names = group_by.split(",") if group_by else []
    known: dict[str, Group] = {name: name for name in GROUPS if everybody or name != "tenant"}
    if len(set(names)) < len(names) or not set(names) <= set(known):
        raise PlatformError("invalid_value", f"group_by takes a list of {', '.join(known)}, each once.", "group_by")
    return tuple(known[name] for name in names)


def _statement(asked: Question) -> Select[*tuple[Any, ...]]:
    used = union_all(*_sources(asked)).subquery("used")
    start = _start(used.c.at, LENGTH[asked.width]).label("bucket_start")
    group = [start, *(column.label(name) for name, column in _ids(used, asked.groups).items())]
    counts = [cast(func.sum(used.c[name]), BigInteger).label(name) for name in COUNTS]
    figures = [*counts, *(func.sum(used.c[name]).label(name) for name in COSTS)]
    summed = select(*group, *figures).group_by(*group).subquery("summed")
    return _named(summed, asked)


def _ids(used: Subquery, groups: Sequence[Group]) -> dict[str, ColumnElement[Any]]:
    columns = {"tenant": "tenant_id", "key": "key_id", "model": "base_model", "adapter": "adapter_id"}
    return {name: used.c[columns.get(name, "version_id")] for name in groups}


def _named(summed: Subquery, asked: Question) -> Select[*tuple[Any, ...]]:
    """Ids with the names that people gave them; the order is the same whoever asks."""
    tenant, key, adapter = aliased(Tenant), aliased(ApiKey), aliased(Adapter)
    version, owner = aliased(AdapterVersion), aliased(Adapter)
    statement: Select[*tuple[Any, ...]] = select(summed.c.bucket_start).select_from(summed)
    for group in asked.groups:
        identity = summed.c[group]
        if group == "tenant":
            statement = statement.outerjoin(tenant, tenant.id == identity).add_columns(tenant.slug)
        elif group == "key":
            statement = statement.outerjoin(key, key.id == identity).add_columns(identity, key.name)
        elif group == "model":
            statement = statement.add_columns(identity)
        elif group == "adapter":
            statement = statement.outerjoin(adapter, adapter.id == identity)
            statement = statement.add_columns(adapter.name, func.nullif(identity, ""))
        else:
            statement = statement.outerjoin(version, version.id == identity)
            statement = statement.outerjoin(owner, owner.id == version.adapter_id)
            name = owner.name + ":" + cast(version.number, String())
            statement = statement.add_columns(name, func.nullif(identity, ""))
    order = (summed.c.bucket_start, *(summed.c[group] for group in asked.groups))
    return statement.add_columns(*(summed.c[name] for name in FIGURES)).order_by(*order)


def _sources(asked: Question) -> list[Select[*tuple[Any, ...]]]:
    if asked.width == "1m":
        return [_records(asked).where(*_asked_for(UsageRecord, UsageRecord.admitted_at, asked))]
    marked = _in_marked(_records(asked), UsageRecord, UsageRecord.admitted_at, _marked(asked, HOUR), HOUR)
    hours = _rollups(asked, "hour").where(_is_unmarked(HOUR))
    if asked.width == "1h":
        return [marked, hours]
    hours_of_days = _in_marked(hours, UsageRollup, UsageRollup.bucket_start, _marked(asked, DAY), DAY)
    return [marked, hours_of_days, _rollups(asked, "day").where(_is_unmarked(DAY))]


def _marked(asked: Question, length: int) -> CTE:
    """The hours that are to be computed again, or the days of which anything is; each with its end."""
    mark = DirtyBucket
    start = mark.bucket_start if length == HOUR else _start(mark.bucket_start, DAY)
    found = select(mark.tenant_id, start.label("bucket_start"), (start + length).label("bucket_end"))
    found = found.where(*_asked_for(mark, mark.bucket_start, asked))
    found = found.where(mark.granularity == "hour") if length == HOUR else found.distinct()
    return found.cte("marked_hours" if length == HOUR else "marked_days").prefix_with("MATERIALIZED")


def _in_marked(
    rows: Select[*tuple[Any, ...]], table: Any, at: Any, marked: CTE, length: int
) -> Select[*tuple[Any, ...]]:
    """The rows of those buckets, found in a time that grows with their number, and not with it times the buckets'.

    Of few buckets each is looked up between its beginning and its end. Its end is a value that was found before:
    row-level security lets no sum into an index's condition, and each would read all rows behind it. Many are joined
    by the beginning, with the rows from the first bucket to the last. Which of the two is the database's choice.
    """
    first, last = select(func.min(marked.c.bucket_start)), select(func.max(marked.c.bucket_end))
    return rows.where(
        marked.c.tenant_id == table.tenant_id,
        at >= marked.c.bucket_start,
        at < marked.c.bucket_end,
        _start(at, length) == marked.c.bucket_start,
        at >= first.scalar_subquery(),
        at < last.scalar_subquery(),
    )


def _start(at: Any, length: int) -> ColumnElement[int]:
    start: ColumnElement[int] = at - at % literal(length, BigInteger())
    return start


def _records(asked: Question) -> Select[*tuple[Any, ...]]:
    record = UsageRecord
    statement = select(
        record.tenant_id.label("tenant_id"),
        record.admitted_at.label("at"),
        record.key_id.label("key_id"),
        record.base_model.label("base_model"),
        func.coalesce(record.adapter_id, "").label("adapter_id"),
        func.coalesce(record.version_id, "").label("version_id"),
        literal(1).label("requests"),
        case((record.outcome == "ok", 0), else_=1).label("errors"),
        record.prompt_tokens.label("prompt_tokens"),
        record.cached_tokens.label("cached_tokens"),
        record.completion_tokens.label("completion_tokens"),
        is_without_cost().label("requests_without_cost"),
        *(func.coalesce(getattr(UsageCost, name), 0.0).label(name) for name in COSTS),
    )
    statement = statement.outerjoin(UsageCost, is_cost_of_record()).where(record.state == "settled")
    return statement if asked.tenant_id is None else statement.where(record.tenant_id == asked.tenant_id)


def _rollups(asked: Question, granularity: str) -> Select[*tuple[Any, ...]]:
    rollup = UsageRollup
    return select(
        rollup.tenant_id,
        rollup.bucket_start,
        rollup.key_id,
        rollup.base_model,
        rollup.adapter_id,
        rollup.version_id,
        *(getattr(rollup, name) for name in FIGURES),
    ).where(rollup.granularity == granularity, *_asked_for(rollup, rollup.bucket_start, asked))


def _asked_for(table: Any, at: Any, asked: Question) -> tuple[ColumnElement[bool], ...]:
    within = (at >= asked.start, at < asked.end)
    return within if asked.tenant_id is None else (table.tenant_id == asked.tenant_id, *within)


def _is_unmarked(length: int) -> ColumnElement[bool]:
    """Of a roll-up: nothing of its bucket is to be computed again.

    Counted, not asked for by EXISTS: that is a join to Postgres, which it makes of all marks with all roll-ups when it
    last saw none of them. A count is one look into the index for each roll-up.
    """
    mark, bucket = DirtyBucket, UsageRollup
    granularities = ("hour",) if length == HOUR else tuple(LENGTHS)
    within = (mark.bucket_start >= bucket.bucket_start, mark.bucket_start < bucket.bucket_start + length)
    marks = select(func.count()).where(mark.tenant_id == bucket.tenant_id, mark.granularity.in_(granularities), *within)
    return marks.scalar_subquery() == 0
