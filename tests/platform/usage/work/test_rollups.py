"""Roll-ups say what the records say, however often and beside whatever they are computed."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import DirtyBucket, UsageRecord, UsageRollup
from lorikeet_platform.usage.periods import DAY
from lorikeet_platform.usage.work import rollups
from lorikeet_platform.usage.work.rollups import Bucket, RollUps, compute
from tests.support.ledger import HOUR_US, NOON, a_payer, another_key, books, opened, settled
from tests.support.platform_parts import FakeClock

MIDNIGHT = NOON - 12 * HOUR_US


@pytest.fixture
def payer(database: Database) -> Principal:
    return a_payer(database, "harbour")


def roll_up(db: Database) -> dict[str, int]:
    return dict(RollUps(db, FakeClock(NOON)).run())


def rows(db: Database, granularity: str) -> list[tuple[Any, ...]]:
    with db.platform.read() as work:
        found = work.query(UsageRollup).filter_by(granularity=granularity).order_by(UsageRollup.bucket_start)
        return [(r.bucket_start, r.requests, r.errors, r.prompt_tokens, r.completion_tokens) for r in found]


def marks(db: Database) -> Counter[str]:
    with db.platform.read() as work:
        return Counter(row.granularity for row in work.query(DirtyBucket))


def test_an_hour_and_its_day_are_summed_up(database: Database, payer: Principal) -> None:
    for at, outcome in ((NOON, "ok"), (NOON + HOUR_US - 1, "server_error"), (NOON + HOUR_US, "ok")):
        settled(database, payer, opened(database, payer, at=at), prompt=10, completion=5, outcome=outcome)  # type: ignore[arg-type]
    opened(database, payer)  # still runs
    assert roll_up(database) == {"hours": 2, "days": 1}
    assert rows(database, "hour") == [(NOON, 2, 1, 20, 10), (NOON + HOUR_US, 1, 0, 10, 5)]
    assert rows(database, "day") == [(MIDNIGHT, 3, 1, 30, 15)]
    assert books(database).are_rolled_up
    assert not marks(database)


def test_keys_and_tenants_have_rows_of_their_own(database: Database, payer: Principal) -> None:
    for each in (payer, another_key(database, payer), a_payer(database, "orchard")):
        settled(database, each, opened(database, each))
    roll_up(database)
    assert [row[1] for row in rows(database, "hour")] == [1, 1, 1]
    assert books(database).are_rolled_up


def test_what_is_settled_later_computes_its_hour_again_and_nothing_else(database: Database, payer: Principal) -> None:
    late = opened(database, payer)
    settled(database, payer, opened(database, payer))
    settled(database, payer, opened(database, payer, at=NOON + HOUR_US))
    roll_up(database)
    settled(database, payer, late, at=NOON + 3 * HOUR_US)
    assert roll_up(database) == {"hours": 1, "days": 1}
    assert rows(database, "day")[0][1] == 3
    assert roll_up(database) == {"hours": 0, "days": 0}


def test_computing_again_changes_nothing(database: Database, payer: Principal) -> None:
    settled(database, payer, opened(database, payer))
    roll_up(database)
    before = rows(database, "hour"), rows(database, "day")
    with database.platform.unit_of_work() as work:
        for granularity, start in (("hour", NOON), ("day", MIDNIGHT)):
            work.add(DirtyBucket(tenant_id=payer.tenant_id, granularity=granularity, bucket_start=start))
    roll_up(database)
    assert (rows(database, "hour"), rows(database, "day")) == before


def test_a_bucket_without_a_mark_is_left_alone(database: Database, payer: Principal) -> None:
    settled(database, payer, opened(database, payer))
    with database.tenant(payer.tenant_id).unit_of_work() as work:
        compute(work, Bucket(payer.tenant_id, "day", MIDNIGHT), NOON)
    assert rows(database, "day") == []


def test_more_buckets_than_one_look_finds_are_all_computed(
    database: Database, payer: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "BATCH", 2)
    other = a_payer(database, "orchard")
    for day in range(3):
        for each in (payer, other):
            settled(database, each, opened(database, each, at=NOON + day * DAY))
    assert roll_up(database) == {"hours": 6, "days": 6}
    assert books(database).are_rolled_up


def test_hours_are_as_long_where_clocks_are_put_forward_or_back(database: Database, payer: Principal) -> None:
    """2026-03-29T01:00:00Z and 2026-10-25T01:00:00Z are when most of Europe does."""
    for change in (1_774_746_000_000_000, 1_792_890_000_000_000):
        for hour in range(-3, 4):
            settled(database, payer, opened(database, payer, at=change + hour * HOUR_US))
    roll_up(database)
    starts = [row[0] for row in rows(database, "hour")]
    assert [second - first for first, second in pairwise(starts[:7])] == [HOUR_US] * 6
    assert all(row[0] % DAY == 0 for row in rows(database, "day"))
    assert books(database).are_rolled_up


def test_a_settlement_in_the_middle_of_a_computation_has_its_turn_again(
    database: Database, payer: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite there is no middle: a writer waits for the other."""
    late = opened(database, payer)
    settled(database, payer, opened(database, payer))
    settler = threading.Thread(target=settled, args=(database, payer, late))
    compute_rows = rollups._compute

    def slow(*arguments: Any) -> None:
        compute_rows(*arguments)
        if settler.ident is None:
            settler.start()
            settler.join(0.5)

    monkeypatch.setattr(rollups, "_compute", slow)
    roll_up(database)
    settler.join()
    roll_up(database)
    assert books(database).are_rolled_up
    assert not marks(database)


def test_settlements_and_two_rounds_of_roll_ups_may_race(database: Database, payer: Principal) -> None:
    payers = [payer, a_payer(database, "orchard")]
    requests = [(each, opened(database, each, at=NOON + n * HOUR_US // 4)) for n in range(20) for each in payers]
    is_over, failures = threading.Event(), []

    def settle_some(number: int) -> None:
        for each, request_id in requests[number::4]:
            settled(database, each, request_id, prompt=number, completion=1)

    def roll() -> None:
        while not is_over.is_set():
            try:
                roll_up(database)
            except Exception as error:
                failures.append(error)

    rolling = [threading.Thread(target=roll) for _ in range(2)]
    settling = [threading.Thread(target=settle_some, args=(number,)) for number in range(4)]
    for thread in (*rolling, *settling):
        thread.start()
    for thread in settling:
        thread.join()
    is_over.set()
    for thread in rolling:
        thread.join()
    roll_up(database)
    assert failures == []
    with database.platform.read() as work:
        assert work.query(UsageRecord).filter_by(state="open").count() == 0
    after = books(database)
    assert after.agree
    assert after.are_rolled_up
