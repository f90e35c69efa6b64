"""While many buckets are to be computed again, a report costs what its records and buckets cost, not their product."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, delete, event, insert, text
from sqlalchemy.orm import Session

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import DirtyBucket, UsageCost, UsageRecord, UsageRollup
from lorikeet_platform.usage.periods import DAY, month_start
from lorikeet_platform.usage.sums import Question, Width, sums
from tests.support.ledger import HOUR_US, NOON
from tests.support.platform_parts import BASE, Tenant

MIDNIGHT = NOON - NOON % DAY
N_HOURS = 40 * 24
END = MIDNIGHT + N_HOURS * HOUR_US
EACH = 4  # requests of an hour
A_CHECK = 100  # steps of SQLite's machine


def fill(work: Session, tenant: Tenant) -> None:
    """Records with costs, and the roll-ups of their hours and days."""
    starts = [MIDNIGHT + number * HOUR_US for number in range(N_HOURS)]
    ids = {
        (start, number): f"req_{tenant.id[-8:]}_{start // HOUR_US}_{number}"
        for start in starts
        for number in range(EACH)
    }
    by = {"tenant_id": tenant.id, "key_id": tenant.key_id, "base_model": BASE}
    tokens = {"prompt_tokens": 7, "cached_tokens": 2, "completion_tokens": 3}
    settled = {"state": "settled", "outcome": "ok", "settled_by": "gateway", "settled_at": NOON}
    of_all = by | tokens | settled | {"subject_id": tenant.key_id, "route": "/v1/completions", "stream": False}
    records = [
        of_all | {"request_id": each, "admitted_at": start + number, "period_start": month_start(start)}
        for (start, number), each in ids.items()
    ]
    work.execute(insert(UsageRecord), records)
    cost = dict.fromkeys(COSTS, 0.5)
    work.execute(insert(UsageCost), [{"tenant_id": tenant.id, "request_id": each} | cost for each in ids.values()])
    for granularity, length in (("hour", HOUR_US), ("day", DAY)):
        n = EACH * length // HOUR_US
        place = {"granularity": granularity, "version_id": "", "adapter_id": "", "computed_at": NOON}
        figures = {name: n * value for name, value in (tokens | cost).items()}
        figures |= {"requests": n, "errors": 0, "requests_without_cost": 0}
        buckets = [start for start in starts if start % length == 0]
        work.execute(insert(UsageRollup), [by | place | figures | {"bucket_start": start} for start in buckets])


def mark(db: Database, tenants: list[Tenant], hours: range) -> None:
    with db.platform.unit_of_work() as work:
        work.execute(delete(DirtyBucket))
        of_all = {"granularity": "hour", "marks": 1}
        marks = [
            of_all | {"tenant_id": tenant.id, "bucket_start": MIDNIGHT + hour * HOUR_US}
            for tenant in tenants
            for hour in hours
        ]
        work.execute(insert(DirtyBucket), marks)


def cost_of(db: Database, asked: Question, n_requests: int) -> int:
    transactions = db.platform if asked.tenant_id is None else db.tenant(asked.tenant_id)
    with transactions.read() as work, counted(work.connection()) as cost:
        assert sum(row[1] for row in sums(work, asked)) == n_requests
    return cost[0]


@contextmanager
def counted(connection: Connection) -> Iterator[list[int]]:
    """What the one statement within costs: steps of SQLite's machine, or rows that Postgres's plan looks at."""
    costs: list[int] = []
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        steps = count()
        driver.set_progress_handler(lambda: next(steps) and None, A_CHECK)
        yield costs
        driver.set_progress_handler(None, 0)
        costs.append(next(steps) * A_CHECK)
        return
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    yield costs
    event.remove(connection, "before_cursor_execute", note)
    [(statement, parameters)] = asked
    explained = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", parameters)
    costs.append(rows_of(explained.scalar_one()[0]["Plan"]))


def rows_of(node: dict[str, Any]) -> int:
    looked_at = sum(
        value for name, value in node.items() if name == "Actual Rows" or name.startswith("Rows Removed by")
    )
    return int(node["Actual Loops"] * looked_at) + sum(map(rows_of, node.get("Plans", ())))


@pytest.fixture
def tenants(place: PlatformContext, mine: Tenant, foreign: Tenant) -> list[Tenant]:
    """Both with much that was rolled up; Postgres knows of it, and of the marks that follow it does not yet."""
    with place.db.platform.unit_of_work() as work:
        for tenant in (mine, foreign):
            fill(work, tenant)
    if not place.db.is_sqlite:
        with place.db.engine.begin() as connection:
            connection.execute(text("ANALYZE usage_records, usage_costs, usage_rollups"))
    return [mine, foreign]


@pytest.mark.parametrize("step", [1, 2], ids=["all hours", "every other hour"])
@pytest.mark.parametrize("width", ["1h", "1d"])
def test_a_report_over_many_marked_hours_looks_at_each_record_and_bucket_a_few_times(
    place: PlatformContext, tenants: list[Tenant], width: Width, step: int
) -> None:
    """Hours times hours, or records times hours, would be hundreds of times as much."""
    db = place.db
    for is_analyzed in (False, True):
        mark(db, tenants, range(0, N_HOURS, step))
        if is_analyzed and not db.is_sqlite:
            with db.engine.begin() as connection:
                connection.execute(text("ANALYZE usage_dirty"))
        for whose in (tenants[:1], tenants):
            asked = Question(whose[0].id if len(whose) == 1 else None, width, MIDNIGHT, END, ())
            n_rows = len(whose) * N_HOURS * (EACH + 2)  # records, hours' roll-ups, marks
            cost = cost_of(db, asked, len(whose) * N_HOURS * EACH)
            assert cost < n_rows * (400 if db.is_sqlite else 20)


@pytest.mark.parametrize("width", ["1h", "1d"])
def test_one_marked_hour_costs_its_own_records_and_not_those_of_the_whole_time(
    place: PlatformContext, tenants: list[Tenant], width: Width
) -> None:
    costs = []
    for hours in (range(N_HOURS // 2, N_HOURS // 2 + 1), range(N_HOURS)):
        mark(place.db, tenants, hours)
        asked = Question(tenants[0].id, width, MIDNIGHT, END, ())
        costs.append(cost_of(place.db, asked, N_HOURS * EACH))
    assert costs[0] < costs[1] / 2
