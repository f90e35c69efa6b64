"""The check finds books that disagree, and none where they agree."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import pytest
from sqlalchemy import event
from structlog.testing import capture_logs

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import BudgetCounter, DirtyBucket, UsageCost, UsageRecord, UsageRollup
from lorikeet_platform.usage.ledger import record_costs
from lorikeet_platform.usage.periods import DAY
from lorikeet_platform.usage.work import check as check_module
from lorikeet_platform.usage.work.check import LedgerCheck
from lorikeet_platform.usage.work.rollups import RollUps
from tests.support.ledger import HOUR_US, NOON, a_cost, a_payer, another_key, counts_of, opened, settled
from tests.support.platform_parts import FakeClock

FEBRUARY = NOON + 31 * DAY


@pytest.fixture
def payer(database: Database) -> Principal:
    """Two keys with settled and open requests, in two months."""
    payer = a_payer(database, "harbour")
    for each in (payer, another_key(database, payer)):
        for at in (NOON, NOON + HOUR_US, FEBRUARY):
            settled(database, each, opened(database, each, at=at))
            opened(database, each, at=at)
    RollUps(database, FakeClock(NOON)).run()
    return payer


def check(db: Database, at: int = FEBRUARY + DAY) -> dict[str, int]:
    return dict(LedgerCheck(db, FakeClock(at)).run())


def change(db: Database, row: Any, which: dict[str, object], **values: object) -> None:
    with db.platform.unit_of_work() as work:
        assert work.query(row).filter_by(**which).update(values) == 1


@pytest.mark.usefixtures("payer")
def test_books_that_agree_have_no_mismatch(database: Database) -> None:
    assert check(database) == {"mismatches": 0, "budgets": 0, "rollups": 0}


def test_a_bucket_that_is_to_be_computed_again_is_no_mismatch(database: Database, payer: Principal) -> None:
    settled(database, payer, opened(database, payer))
    assert check(database)["mismatches"] == 0


@pytest.mark.parametrize("column", ["settled", "reserved"])
def test_a_budget_with_a_token_too_many_is_found(database: Database, payer: Principal, column: str) -> None:
    which = {"subject_id": payer.tenant_id, "period_start": NOON - 12 * HOUR_US}
    change(database, BudgetCounter, which, **{column: 999})
    with capture_logs() as lines:
        assert check(database) == {"mismatches": 1, "budgets": 1, "rollups": 0}
    assert lines[0]["difference"]["subject_id"] == payer.tenant_id


def test_a_keys_budget_that_is_missing_is_found(database: Database, payer: Principal) -> None:
    with database.platform.unit_of_work() as work:
        work.query(BudgetCounter).filter_by(subject_id=payer.subject_id, period_start=NOON - 12 * HOUR_US).delete()
    assert check(database)["budgets"] == 1


@pytest.mark.parametrize("granularity", ["hour", "day"])
@pytest.mark.parametrize("column", ["requests", "prompt_tokens", "cached_tokens", "completion_tokens"])
def test_a_roll_up_that_says_something_else_is_found(
    database: Database, payer: Principal, granularity: str, column: str
) -> None:
    start = NOON if granularity == "hour" else NOON - 12 * HOUR_US
    which = {"granularity": granularity, "bucket_start": start, "key_id": payer.key_id}
    change(database, UsageRollup, which, **{column: 7_777})
    assert check(database) == {"mismatches": 1, "budgets": 0, "rollups": 1}


def with_costs(db: Database, payer: Principal, n: int = 300) -> None:
    """Of very different size, so that it matters in which order they are added up."""
    requests = [opened(db, payer, at=NOON + number) for number in range(n)]
    for request_id in requests:
        settled(db, payer, request_id)
    costs = (a_cost(10.1 ** (number % 16)) for number in range(n))
    record_costs(db, [counts_of(payer.tenant_id, each, cost=cost) for each, cost in zip(requests, costs, strict=True)])
    RollUps(db, FakeClock(NOON)).run()


@pytest.mark.parametrize("granularity", ["hour", "day"])
@pytest.mark.parametrize("column", COSTS)
def test_a_roll_up_with_a_wrong_cost_is_found(
    database: Database, payer: Principal, granularity: str, column: str
) -> None:
    with_costs(database, payer, n=3)
    start = NOON if granularity == "hour" else NOON - 12 * HOUR_US
    which = {"granularity": granularity, "bucket_start": start, "key_id": payer.key_id}
    assert check(database)["mismatches"] == 0
    with database.platform.read() as work:
        right = getattr(work.query(UsageRollup).filter_by(**which).one(), column)
    change(database, UsageRollup, which, **{column: right * (1 + 1e-6)})
    with capture_logs() as lines:
        assert check(database) == {"mismatches": 1, "budgets": 0, "rollups": 1}
    difference = lines[0]["difference"]
    assert difference[column] == pytest.approx(-right * 1e-6, rel=1e-3)
    assert {name for name in (*COSTS, "requests") if difference[name] != 0} == {column}


def test_a_cost_that_no_roll_up_has_is_found(database: Database, payer: Principal) -> None:
    with_costs(database, payer, n=1)
    with database.platform.unit_of_work() as work:
        assert work.query(UsageRollup).update(dict.fromkeys(COSTS, 0.0)) > 0
    assert check(database) == {"mismatches": 2, "budgets": 0, "rollups": 2}


def test_the_order_in_which_costs_were_added_up_is_no_mismatch(database: Database, payer: Principal) -> None:
    with_costs(database, payer)
    with database.platform.unit_of_work() as work:
        costs = [row.prefill_flops for row in work.query(UsageCost)]
        right, largest_first = math.fsum(costs), functools.reduce(operator.add, sorted(costs, reverse=True))
        assert right != largest_first
        for rollup in work.query(UsageRollup).filter(UsageRollup.prefill_flops > 0):
            rollup.prefill_flops = largest_first
    assert check(database)["mismatches"] == 0


def test_a_mark_that_was_lost_is_found_in_the_hour_and_in_the_day(database: Database, payer: Principal) -> None:
    settled(database, payer, opened(database, payer, at=NOON + 2 * HOUR_US))
    with database.platform.unit_of_work() as work:
        work.query(DirtyBucket).delete()
    assert check(database)["rollups"] == 2


@pytest.mark.usefixtures("payer")
def test_a_record_that_was_changed_is_found_in_every_book(database: Database) -> None:
    with database.platform.unit_of_work() as work:
        record = work.query(UsageRecord).filter_by(state="settled", admitted_at=NOON).first()
        assert record is not None
        record.completion_tokens += 1
    assert check(database) == {"mismatches": 4, "budgets": 2, "rollups": 2}


def test_what_lies_two_months_back_is_closed(database: Database, payer: Principal) -> None:
    which = {"subject_id": payer.tenant_id, "period_start": NOON - 12 * HOUR_US}
    change(database, BudgetCounter, which, settled=999)
    assert check(database, FEBRUARY + 31 * DAY)["mismatches"] == 0


def test_what_is_settled_while_the_books_are_read_is_no_mismatch(
    database: Database, payer: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks included: what the first statement sees settled, the last one must not see marked, or computed."""
    running = [opened(database, payer) for _ in range(4)]
    found = check_module._found

    def interrupted(*arguments: Any) -> int:
        n_found = found(*arguments)
        settled(database, payer, running.pop())
        RollUps(database, FakeClock(NOON)).run()
        return n_found

    monkeypatch.setattr(check_module, "_found", interrupted)
    assert check(database)["mismatches"] == 0
    assert len(running) == 1


def test_every_statement_reads_the_records_of_one_tenant_by_their_index(database: Database, payer: Principal) -> None:
    """All of them together are one long statement over the largest table there is, every hour."""
    other = a_payer(database, "orchard")
    settled(database, other, opened(database, other))
    read: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "usage_records" in statement:
            read.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        check(database)
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
    ids = {payer.tenant_id, other.tenant_id}
    values = [set(each.values() if isinstance(each, dict) else each) for _, each in read]
    assert [len(ids & each) for each in values] == [1] * 6
    if database.is_sqlite:
        with database.engine.connect() as connection:
            plans = [
                [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
                for statement, parameters in read
            ]
        steps = [step for plan in plans for step in plan if "usage_records" in step]
        assert len(steps) == 8
        assert {step.split("(")[1] for step in steps} == {"tenant_id=? AND admitted_at>?)"}


def test_the_books_of_every_tenant_are_checked(database: Database, payer: Principal) -> None:
    other = a_payer(database, "orchard")
    settled(database, other, opened(database, other))
    RollUps(database, FakeClock(NOON)).run()
    for each in (payer, other):
        which = {"subject_id": each.tenant_id, "period_start": NOON - 12 * HOUR_US}
        change(database, BudgetCounter, which, settled=999)
    assert check(database) == {"mismatches": 2, "budgets": 2, "rollups": 0}
