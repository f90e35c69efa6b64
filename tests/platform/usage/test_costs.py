"""Costs beside the bill: written once, rolled up, and told to their tenant."""

from __future__ import annotations

import csv
import io
import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import IntegrityError, OperationalError

from lorikeet_engine.cost_vector import COSTS, CostVector
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import DirtyBucket, UsageCost, UsageRollup
from lorikeet_platform.ids import new_id
from lorikeet_platform.usage.ledger import record_costs
from lorikeet_platform.usage.work import settling
from lorikeet_platform.usage.work.check import LedgerCheck
from lorikeet_platform.usage.work.outbox import OutboxDrain
from lorikeet_platform.usage.work.reaper import Reaper
from lorikeet_platform.usage.work.rollups import RollUps
from tests.platform.usage.conftest import get
from tests.support.ledger import (
    HOUR_US,
    NOON,
    NOON_S,
    AsPayer,
    CountingEngine,
    a_cost,
    counts_of,
    opened,
    use,
)
from tests.support.platform_parts import FakeClock, Tenant

HOUR = 3_600
ASKED: dict[str, Any] = {"start": NOON_S, "end": NOON_S + 3 * HOUR}


def told(cost: CostVector) -> dict[str, float]:
    return {name: getattr(cost, name) for name in COSTS}


def written(db: Database) -> dict[str, dict[str, float]]:
    with db.platform.read() as work:
        return {row.request_id: {name: getattr(row, name) for name in COSTS} for row in work.query(UsageCost)}


def marks(db: Database) -> set[tuple[str, str, int]]:
    with db.platform.read() as work:
        return {(row.tenant_id, row.granularity, row.bucket_start) for row in work.query(DirtyBucket)}


def test_costs_of_several_tenants_are_written_once_and_mark_their_hours(
    place: PlatformContext, mine: Tenant, foreign: Tenant
) -> None:
    db = place.db
    ids = [use(db, mine), use(db, mine, at=NOON + HOUR_US), use(db, foreign)]
    owners = [mine.id, mine.id, foreign.id]
    RollUps(db).run()
    found = [
        counts_of(owner, each, cost=a_cost(i + 1)) for i, (owner, each) in enumerate(zip(owners, ids, strict=True))
    ]
    record_costs(db, found)
    assert written(db) == {each: told(a_cost(i + 1)) for i, each in enumerate(ids)}
    expected = {(mine.id, "hour", NOON), (mine.id, "hour", NOON + HOUR_US), (foreign.id, "hour", NOON)}
    assert marks(db) == expected
    RollUps(db).run()
    assert marks(db) == set()
    record_costs(db, [counts_of(mine.id, ids[0], cost=a_cost(9)), counts_of(mine.id, new_id("req"), cost=a_cost(9))])
    assert written(db)[ids[0]] == told(a_cost(1)), "the first word stays"
    assert len(written(db)) == 3, "nothing of requests that have no record"
    assert marks(db) == set(), "what changes nothing marks nothing"
    record_costs(db, [counts_of(mine.id, ids[0])])
    record_costs(db, [])


def test_another_tenants_record_takes_no_cost(place: PlatformContext, mine: Tenant, foreign: Tenant) -> None:
    request_id = use(place.db, mine)
    record_costs(place.db, [counts_of(foreign.id, request_id, cost=a_cost(1))])
    assert written(place.db) == {}


def test_two_who_write_the_same_costs_at_once_write_them_once(place: PlatformContext, mine: Tenant) -> None:
    ids = [use(place.db, mine, at=NOON + number * HOUR_US) for number in range(8)]
    found = [counts_of(mine.id, each, cost=a_cost(1)) for each in ids]
    threads = [threading.Thread(target=record_costs, args=(place.db, order)) for order in (found, found[::-1]) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written(place.db).keys() == set(ids)


def test_a_report_has_costs_by_bucket_and_together_before_and_after_the_roll_ups(
    place: PlatformContext, tenant_port: TestClient, admin_port: TestClient, mine: Tenant, foreign: Tenant
) -> None:
    first, second, third = use(place.db, mine), use(place.db, mine), use(place.db, mine, at=NOON + HOUR_US)
    use(place.db, mine)  # its engine was lost
    use(place.db, mine, figures=(0, 0, 0), outcome="shed")  # refused: there is nothing to cost
    theirs = use(place.db, foreign)
    RollUps(place.db).run()
    of_mine = [counts_of(mine.id, each, cost=a_cost(factor)) for each, factor in ((first, 1), (second, 2), (third, 4))]
    record_costs(place.db, [*of_mine, counts_of(foreign.id, theirs, cost=a_cost(8))])
    for _ in range(2):
        for bucket, factors in (("1m", [3, 4]), ("1h", [3, 4])):
            report = get(tenant_port, mine, **ASKED, bucket=bucket).json()
            assert [row["costs"] for row in report["data"]] == [told(a_cost(factor)) for factor in factors]
            assert [row["requests_without_cost"] for row in report["data"]] == [1, 0]
            assert report["costs"] == told(a_cost(7))
            assert report["requests_without_cost"] == 1
        days = get(tenant_port, mine, **ASKED, bucket="1d").json()
        assert [row["costs"] for row in days["data"]] == [told(a_cost(7))]
        everybody = admin_port.get("/admin/v1/usage", params=ASKED | {"group_by": "tenant", "bucket": "1d"}).json()
        assert {row["tenant"]: row["costs"] for row in everybody["data"]} == {
            "harbour": told(a_cost(7)),
            "orchard": told(a_cost(8)),
        }
        assert everybody["costs"] == told(a_cost(15))
        RollUps(place.db).run()
    assert LedgerCheck(place.db, FakeClock(NOON)).run()["mismatches"] == 0


def test_csv_has_a_column_for_each_cost(place: PlatformContext, tenant_port: TestClient, mine: Tenant) -> None:
    record_costs(place.db, [counts_of(mine.id, use(place.db, mine), cost=a_cost(3))])
    [row] = csv.DictReader(io.StringIO(get(tenant_port, mine, **ASKED, format="csv").text))
    assert {name: float(row[name]) for name in COSTS} == told(a_cost(3))
    assert row["requests_without_cost"] == "0"


def test_a_single_record_tells_its_cost_once_it_is_known(
    place: PlatformContext, tenant_port: TestClient, mine: Tenant
) -> None:
    request_id = use(place.db, mine)
    [record] = get(tenant_port, mine, "/v1/usage/records").json()["data"]
    assert record["cost"] is None
    record_costs(place.db, [counts_of(mine.id, request_id, cost=a_cost(5))])
    [record] = get(tenant_port, mine, "/v1/usage/records").json()["data"]
    assert record["cost"] == told(a_cost(5))


def test_what_the_engine_offers_and_what_is_reaped_brings_its_cost_along(place: PlatformContext, mine: Tenant) -> None:
    payer, engine = AsPayer(mine), CountingEngine()
    ended, reaped, billed, unmetered = (
        opened(place.db, payer),
        opened(place.db, payer),
        use(place.db, mine),
        new_id("req"),
    )
    for each, factor in ((ended, 1), (billed, 2), (unmetered, 3)):
        engine.remember(counts_of(mine.id, each, cost=a_cost(factor)))
    engine.remember(counts_of(mine.id, reaped, cost=a_cost(4)), unclaimed=False)
    OutboxDrain(place.db, engine, FakeClock(NOON)).run()
    assert written(place.db) == {ended: told(a_cost(1)), billed: told(a_cost(2))}
    Reaper(place.db, engine, FakeClock(NOON + 2 * HOUR_US)).run()
    assert written(place.db)[reaped] == told(a_cost(4))
    assert set(engine.told) == {ended, billed, unmetered, reaped}


def test_costs_that_cannot_be_written_cost_no_bill(
    place: PlatformContext, mine: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer, engine = AsPayer(mine), CountingEngine()
    first, second = opened(place.db, payer), opened(place.db, payer)
    engine.remember(counts_of(mine.id, first, cost=a_cost(1)))
    failures: list[Exception] = [OperationalError("insert", {}, Exception("locked"))]

    def fails(*_: object) -> None:
        raise failures[0]

    monkeypatch.setattr(settling, "record_costs", fails)
    with pytest.raises(OperationalError):
        OutboxDrain(place.db, engine, FakeClock(NOON)).run()
    assert engine.told == [], "it is offered again, with its cost"
    failures[0] = IntegrityError("insert", {}, Exception("a fault of ours"))
    engine.remember(counts_of(mine.id, second, cost=a_cost(1)))
    OutboxDrain(place.db, engine, FakeClock(NOON)).run()
    assert set(engine.told) == {first, second}
    with place.db.platform.read() as work:
        assert work.query(UsageRollup).count() == 0
