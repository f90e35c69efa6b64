"""What dead gateways left open is settled by what the engine knows; what may still be running waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import HOUR, SECOND
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import BudgetCounter, Gateway
from lorikeet_platform.usage.work.reaper import Reaper
from tests.support.ledger import (
    NOON,
    CountingEngine,
    a_payer,
    books,
    counts_of,
    opened,
    record_of,
    settled,
    without_counters,
)
from tests.support.platform_parts import FakeClock

SOON, LATE = NOON + 60 * SECOND, NOON + 121 * SECOND


@pytest.fixture
def payer(database: Database) -> Principal:
    return a_payer(database, "harbour")


def reap(db: Database, engine: CountingEngine, at: int = LATE) -> dict[str, int]:
    return dict(Reaper(db, engine, FakeClock(at)).run())


def a_gateway(db: Database, *, seen_at: int) -> str:
    with db.platform.unit_of_work() as work:
        work.add(Gateway(id="gwy_1", started_at=NOON, seen_at=seen_at))
    return "gwy_1"


def test_a_record_that_the_engine_does_not_know_used_nothing(database: Database, payer: Principal) -> None:
    request_id = opened(database, payer)
    assert reap(database, CountingEngine())["reaped"] == 1
    record = record_of(database, request_id)
    assert (record.state, record.outcome, record.settled_by) == ("settled", "server_error", "reaper")
    assert (record.prompt_tokens, record.completion_tokens) == (0, 0)
    after = books(database)
    assert (after.open_estimates, after.settled_in_records) == (0, 0)
    assert after.agree


@pytest.mark.parametrize(("state", "outcome"), [("ended", "client_cancelled"), ("lost", "server_error")])
def test_what_the_engine_knows_of_it_is_billed(database: Database, payer: Principal, state: str, outcome: str) -> None:
    request_id, engine = opened(database, payer), CountingEngine()
    engine.remember(counts_of(payer.tenant_id, request_id, state=state, prompt=30, cached=16, completion=7))
    assert reap(database, engine)["reaped"] == 1
    record = record_of(database, request_id)
    assert (record.outcome, record.settled_by) == (outcome, "reaper")
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (30, 16, 7)
    assert engine.told == [request_id]
    assert books(database).agree


@pytest.mark.parametrize("state", ["ended", "lost"])
def test_a_prompt_without_a_token_of_answer_costs_nothing(database: Database, payer: Principal, state: str) -> None:
    request_id, engine = opened(database, payer), CountingEngine()
    engine.remember(counts_of(payer.tenant_id, request_id, state=state, prompt=30, cached=16, completion=0))
    reap(database, engine)
    record = record_of(database, request_id)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (0, 0, 0)


def test_what_still_runs_waits(database: Database, payer: Principal) -> None:
    request_id, engine = opened(database, payer), CountingEngine()
    engine.remember(counts_of(payer.tenant_id, request_id, state="running"), unclaimed=False)
    figures = reap(database, engine)
    assert (figures["reaped"], figures["waiting"]) == (0, 1)
    assert record_of(database, request_id).state == "open"
    assert engine.told == []


def test_without_an_engine_all_wait(database: Database, payer: Principal) -> None:
    request_id = opened(database, payer)
    figures = reap(database, CountingEngine(is_up=False))
    assert (figures["reaped"], figures["waiting"]) == (0, 1)
    assert record_of(database, request_id).state == "open"


def test_what_is_on_record_does_not_wait_though_the_engine_did_not_hear_of_it(
    database: Database, payer: Principal
) -> None:
    class Deaf(CountingEngine):
        def settled(self, request_ids: Sequence[str]) -> None:
            raise EngineUnavailable(f"the connection was lost before {request_ids} were told")

    engine = Deaf()
    engine.remember(counts_of(payer.tenant_id, opened(database, payer)))
    figures = reap(database, engine)
    assert (figures["reaped"], figures["waiting"]) == (1, 0)


def test_a_gateway_that_lives_settles_for_itself(database: Database, payer: Principal) -> None:
    request_id = opened(database, payer, gateway_id=a_gateway(database, seen_at=LATE - 119 * SECOND))
    assert reap(database, CountingEngine())["reaped"] == 0
    assert record_of(database, request_id).state == "open"


def test_f5_a_gateway_that_was_not_seen_for_two_minutes_is_dead(database: Database, payer: Principal) -> None:
    opened(database, payer, gateway_id=a_gateway(database, seen_at=LATE - 120 * SECOND))
    assert reap(database, CountingEngine())["reaped"] == 1


def test_a_gateway_whose_row_is_gone_is_dead(database: Database, payer: Principal) -> None:
    opened(database, payer, gateway_id="gwy_2")
    assert reap(database, CountingEngine())["reaped"] == 1


def test_what_was_just_admitted_is_left_alone(database: Database, payer: Principal) -> None:
    opened(database, payer)
    assert reap(database, CountingEngine(), SOON)["reaped"] == 0


def test_what_a_living_gateway_forgot_is_settled_in_the_end(database: Database, payer: Principal) -> None:
    at = NOON + HOUR + SECOND
    opened(database, payer, gateway_id=a_gateway(database, seen_at=at))
    assert reap(database, CountingEngine(), at)["reaped"] == 1


def test_a_settled_record_is_nobodys_to_reap(database: Database, payer: Principal) -> None:
    settled(database, payer, opened(database, payer))
    before = books(database)
    assert reap(database, CountingEngine())["reaped"] == 0
    assert books(database) == before


def test_many_records_of_several_tenants_are_reaped_in_one_round(
    database: Database, payer: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lorikeet_platform.usage.work.reaper.BATCH", 3)
    other, engine = a_payer(database, "orchard"), CountingEngine()
    waiting = opened(database, payer)
    engine.remember(counts_of(payer.tenant_id, waiting, state="running"), unclaimed=False)
    for _ in range(4):
        opened(database, payer)
        opened(database, other)
    figures = reap(database, engine)
    assert (figures["reaped"], figures["waiting"]) == (8, 1)
    assert books(database).open_estimates == 100


def test_a_reservation_of_the_dead_is_given_back(database: Database, payer: Principal) -> None:
    opened(database, payer, est=700)
    reap(database, CountingEngine())
    with database.platform.read() as work:
        assert [row.reserved for row in work.query(BudgetCounter)] == [0, 0]


def test_a_record_that_cannot_be_settled_keeps_no_other_from_it(database: Database, payer: Principal) -> None:
    other, engine = a_payer(database, "orchard"), CountingEngine()
    broken, sound = opened(database, payer), [opened(database, other) for _ in range(2)]
    for each in (broken, *sound):
        engine.remember(counts_of(payer.tenant_id if each == broken else other.tenant_id, each))
    without_counters(database, payer)
    figures = reap(database, engine)
    assert (figures["reaped"], figures["failed"]) == (2, 1)
    assert sorted(engine.told) == sorted(sound)
    assert record_of(database, broken).state == "open"
