"""What the engine remembers of requests that nobody settled is settled once, and then forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy.exc import OperationalError

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import HOUR, SECOND
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Chore, Gateway
from lorikeet_platform.ids import new_id
from lorikeet_platform.usage.work.outbox import NAME, OutboxDrain
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


@pytest.fixture
def payer(database: Database) -> Principal:
    return a_payer(database, "harbour")


def drain(db: Database, engine: CountingEngine) -> dict[str, int]:
    return dict(OutboxDrain(db, engine, FakeClock(NOON)).run())


def test_what_the_engine_counted_is_billed_and_then_forgotten(database: Database, payer: Principal) -> None:
    first, second, engine = opened(database, payer), opened(database, payer), CountingEngine()
    engine.remember(counts_of(payer.tenant_id, first, prompt=10, completion=5))
    engine.remember(counts_of(payer.tenant_id, second, state="lost", prompt=20, completion=1))
    assert drain(database, engine)["settled"] == 2
    records = [record_of(database, each) for each in (first, second)]
    assert [(r.outcome, r.settled_by, r.prompt_tokens + r.completion_tokens) for r in records] == [
        ("client_cancelled", "engine_outbox", 15),
        ("server_error", "engine_outbox", 21),
    ]
    assert sorted(engine.told) == sorted([first, second])
    assert books(database).agree


def test_draining_twice_bills_once_also_when_the_engine_did_not_hear_of_the_first_time(
    database: Database, payer: Principal
) -> None:
    request_id, engine = opened(database, payer), CountingEngine()
    told = counts_of(payer.tenant_id, request_id, prompt=10, completion=5)
    engine.remember(told)
    drain(database, engine)
    before = books(database)
    engine.remember(told)
    figures = drain(database, engine)
    assert (figures["settled"], figures["conflicts"]) == (0, 0)
    assert books(database) == before
    assert engine.told == [request_id, request_id]


def test_the_gateways_figures_win_by_being_first(database: Database, payer: Principal) -> None:
    request_id, engine = opened(database, payer), CountingEngine()
    settled(database, payer, request_id, prompt=10, completion=5)
    engine.remember(counts_of(payer.tenant_id, request_id, prompt=10, completion=9))
    assert drain(database, engine)["conflicts"] == 0
    record = record_of(database, request_id)
    assert (record.settled_by, record.completion_tokens) == ("gateway", 5)
    assert engine.told == [request_id]


def test_figures_that_contradict_the_gateways_are_counted_and_change_nothing(
    database: Database, payer: Principal
) -> None:
    request_id, engine = opened(database, payer), CountingEngine()
    settled(database, payer, request_id, prompt=10, completion=5)
    engine.remember(counts_of(payer.tenant_id, request_id, prompt=10, completion=4))
    before = books(database)
    assert drain(database, engine)["conflicts"] == 1
    assert books(database) == before


def test_what_the_platform_itself_asked_is_nobodys_to_pay_and_is_forgotten(
    database: Database, payer: Principal
) -> None:
    request_id, engine = new_id("req"), CountingEngine()
    engine.remember(counts_of(payer.tenant_id, request_id))
    assert drain(database, engine)["unmetered"] == 1
    assert engine.told == [request_id]
    assert books(database).settled_in_records == 0


def test_without_an_engine_nothing_happens(database: Database, payer: Principal) -> None:
    opened(database, payer)
    assert drain(database, CountingEngine(is_up=False))["settled"] == 0


def test_an_engine_that_goes_away_before_it_hears_of_it_is_told_the_next_time(
    database: Database, payer: Principal
) -> None:
    class Failing(CountingEngine):
        def settled(self, request_ids: Sequence[str]) -> None:
            self.is_up = False
            super().settled(request_ids)

    request_id, engine = opened(database, payer), Failing()
    engine.remember(counts_of(payer.tenant_id, request_id))
    assert drain(database, engine)["settled"] == 1
    engine.is_up = True
    assert drain(database, engine)["settled"] == 0
    assert books(database).agree


def test_what_cannot_be_settled_stays_with_the_engine_and_keeps_nothing_else_there(
    database: Database, payer: Principal
) -> None:
    other, engine = a_payer(database, "orchard"), CountingEngine()
    broken, sound = opened(database, payer), [opened(database, other) for _ in range(2)]
    for each in (broken, *sound):
        engine.remember(counts_of(payer.tenant_id if each == broken else other.tenant_id, each))
    without_counters(database, payer)
    figures = drain(database, engine)
    assert (figures["settled"], figures["failed"]) == (2, 1)
    assert sorted(engine.told) == sorted(sound)
    assert engine.unclaimed == {broken}


@pytest.mark.slow
def test_a_tenant_that_cannot_be_one_keeps_nothing_else_with_the_engine(postgres: Database) -> None:
    payer, engine = a_payer(postgres, "harbour"), CountingEngine()
    sound = opened(postgres, payer)
    engine.remember(counts_of("no tenant's id", "req_0"))
    engine.remember(counts_of(payer.tenant_id, sound))
    figures = drain(postgres, engine)
    assert (figures["settled"], figures["failed"]) == (1, 1)


def test_a_database_in_trouble_is_told_apart_from_a_record_in_trouble(
    database: Database, payer: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise OperationalError("UPDATE", None, Exception("gone"))

    engine = CountingEngine()
    engine.remember(counts_of(payer.tenant_id, opened(database, payer)))
    monkeypatch.setattr("lorikeet_platform.usage.work.settling.settle", lost)
    with pytest.raises(OperationalError):
        drain(database, engine)
    assert engine.told == []


def a_gateway(db: Database, *, seen_at: int) -> str:
    gateway_id = new_id("gwy")
    with db.platform.unit_of_work() as work:
        work.add(Gateway(id=gateway_id, started_at=NOON, seen_at=seen_at))
    return gateway_id


@pytest.mark.parametrize("state", ["ended", "lost"])
def test_a_gateway_that_lives_settles_its_own_however_long_the_database_was_away(
    database: Database, payer: Principal, state: str
) -> None:
    """It knows how the request ended, and a lost engine's last note is less than what was delivered."""
    gateway_id, engine = a_gateway(database, seen_at=NOON - 119 * SECOND), CountingEngine()
    its, nobodys = opened(database, payer, gateway_id=gateway_id), opened(database, payer, gateway_id="gwy_gone")
    for each in (its, nobodys):
        engine.remember(counts_of(payer.tenant_id, each, state=state, completion=5))
    figures = drain(database, engine)
    assert (figures["settled"], figures["waiting"]) == (1, 1)
    assert (record_of(database, its).state, record_of(database, nobodys).state) == ("open", "settled")
    assert engine.told == [nobodys]
    assert settled(database, payer, its, completion=7 if state == "lost" else 5) == "settled"
    assert record_of(database, its).outcome == "ok"
    figures = drain(database, engine)
    assert (figures["settled"], figures["conflicts"], figures["waiting"]) == (0, 0, 0)
    assert engine.unclaimed == set()


@pytest.mark.parametrize(
    ("seen_before", "admitted_before"),
    [(120 * SECOND, 0), (0, HOUR + SECOND)],
    ids=["it was not seen for two minutes", "it forgot the request"],
)
def test_a_gateways_own_is_anybodys(
    database: Database, payer: Principal, seen_before: int, admitted_before: int
) -> None:
    gateway_id, engine = a_gateway(database, seen_at=NOON - seen_before), CountingEngine()
    engine.remember(
        counts_of(payer.tenant_id, opened(database, payer, at=NOON - admitted_before, gateway_id=gateway_id))
    )
    assert drain(database, engine)["settled"] == 1


def test_totals_outlive_processes(database: Database, payer: Principal) -> None:
    for total in (1, 2):
        engine = CountingEngine()
        engine.remember(counts_of(payer.tenant_id, opened(database, payer)))
        figures = drain(database, engine)
        assert (figures["settled"], figures["total_settled"]) == (1, total)
        with database.platform.unit_of_work() as work:
            work.merge(Chore(name=NAME, due_at=NOON, result=figures))
