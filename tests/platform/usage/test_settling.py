"""Settling apart from the requests: retried, bounded, told to the engine, and drained at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import IntegrityError, OperationalError
from structlog.testing import capture_logs

from lorikeet_engine.client import RequestCounts
from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.usage import settling
from lorikeet_platform.usage.ledger import Settlement, Verdict
from lorikeet_platform.usage.settling import Settler
from tests.support.ledger import counts_of

LOCKED = OperationalError("update", {}, Exception("database is locked"))


def settlement(number: int) -> Settlement:
    return Settlement(
        tenant_id="ten_1",
        request_id=f"req_{number}",
        outcome="ok",
        prompt_tokens=10,
        completion_tokens=number,
        cached_tokens=0,
        settled_by="gateway",
        settled_at=1,
    )


@dataclass
class Ledger:
    """Writes down, after `failures`, whenever it may."""

    failures: list[Exception] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    may_write: threading.Event = field(default_factory=threading.Event)
    lags: list[float] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)
    cost_failures: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_write.set()

    def settle(self, settlement: Settlement) -> Verdict:
        self.may_write.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(settlement.request_id)
        return "settled"

    def record_costs(self, found: Sequence[RequestCounts]) -> None:
        if self.cost_failures:
            raise self.cost_failures.pop(0)
        self.costs += [each.request_id for each in found]

    def observe_lag(self, seconds: float) -> None:
        self.lags.append(seconds)


@dataclass
class Engine:
    """Knows what every request has cost but the `unknown`; those that are `running` end one look later."""

    told: list[list[str]] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    failures: list[Exception] = field(default_factory=list)

    async def counts(self, request_ids: Sequence[str]) -> Sequence[RequestCounts]:
        assert request_ids, "without ids it would offer everybody's"
        if self.failures:
            raise self.failures.pop(0)
        running, self.running = self.running, set()
        return [
            replace(
                counts_of("ten_1", each),
                state="running" if each in running else "ended",
                cost=None if each in running else CostVector(prefill_flops=1.0),
            )
            for each in request_ids
            if each not in self.unknown
        ]

    async def settled(self, request_ids: Sequence[str]) -> None:
        self.told.append(list(request_ids))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "AGAIN_AFTER_S", (0.01,))
    monkeypatch.setattr(settling, "FIRST_TRY_S", 0.1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10))


def test_what_is_settled_is_on_record_when_the_call_returns_and_then_the_engine_is_told() -> None:
    ledger, engine = Ledger(), Engine()

    async def work() -> None:
        settler = Settler(ledger, engine)
        for number in range(3):
            await settler.settle(settlement(number))
            assert ledger.written[-1] == f"req_{number}"
        assert engine.told == []
        await settler.drain(1)

    run(work())
    assert engine.told == [["req_0", "req_1", "req_2"]]
    assert len(ledger.lags) == 3


def test_the_engine_is_told_without_a_drain_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, engine = Ledger(), Engine()
    monkeypatch.setattr(settling, "TELL_AFTER_S", 0.01)

    async def work() -> None:
        await Settler(ledger, engine).settle(settlement(1))
        while not engine.told:
            await asyncio.sleep(0.005)

    run(work())
    assert engine.told == [["req_1"]]


def test_a_database_that_comes_back_gets_what_it_missed() -> None:
    ledger, engine = Ledger([LOCKED] * 5), Engine()

    async def work() -> None:
        settler = Settler(ledger, engine)
        await settler.settle(settlement(1))
        assert ledger.written == []
        await settler.drain(5)

    run(work())
    assert ledger.written == ["req_1"]
    assert engine.told == [["req_1"]]
    assert ledger.failures == []


def test_a_cancelled_caller_does_not_take_its_bill_along() -> None:
    ledger, engine = Ledger(), Engine()
    ledger.may_write.clear()

    async def work() -> None:
        settler = Settler(ledger, engine)
        caller = asyncio.create_task(settler.settle(settlement(1)))
        await asyncio.sleep(0.02)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        ledger.may_write.set()
        await settler.drain(5)

    run(work())
    assert ledger.written == ["req_1"]


def test_a_slow_database_holds_no_answer_for_long() -> None:
    ledger = Ledger()
    ledger.may_write.clear()

    async def work() -> None:
        settler = Settler(ledger, Engine())
        for number in range(8):  # more than are tried at once
            await settler.settle(settlement(number))
        assert settler.n_waiting == 8
        ledger.may_write.set()
        await settler.drain(5)

    run(work())
    assert sorted(ledger.written) == [f"req_{number}" for number in range(8)]


def test_what_finds_no_room_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MAX_WAITING", 2)
    ledger, engine = Ledger(), Engine()
    ledger.may_write.clear()

    async def work() -> None:
        settler = Settler(ledger, engine)
        for number in range(3):
            await settler.settle(settlement(number))
        ledger.may_write.set()
        await settler.drain(5)

    with capture_logs() as lines:
        run(work())
    assert sorted(ledger.written) == ["req_0", "req_1"]
    assert sorted(id for ids in engine.told for id in ids) == ["req_0", "req_1"]
    assert [(line["event"], line["request_id"], line["completion_tokens"]) for line in lines] == [
        ("no room to settle usage", "req_2", 2)
    ]


def test_what_is_not_in_time_at_the_end_is_logged_and_left_to_the_engine() -> None:
    ledger, engine = Ledger([LOCKED] * 10_000), Engine()

    async def work() -> None:
        settler = Settler(ledger, engine)
        for number in range(6):
            await settler.settle(settlement(number))
        await settler.drain(0.05)

    with capture_logs() as lines:
        run(work())
    left = [line["request_id"] for line in lines if line["event"] == "usage not settled"]
    assert sorted(left) == [f"req_{number}" for number in range(6)]
    assert engine.told == []


def test_what_the_database_will_never_have_is_given_up_and_holds_nobody_up() -> None:
    ledger, engine = Ledger([IntegrityError("update", {}, Exception("no such version"))]), Engine()

    async def work() -> None:
        settler = Settler(ledger, engine)
        await settler.settle(settlement(1))
        await settler.settle(settlement(2))
        await settler.drain(1)

    with capture_logs() as lines:
        run(work())
    assert ledger.written == ["req_2"]
    assert engine.told == [["req_2"]]
    assert [(line["event"], line["request_id"]) for line in lines] == [("usage cannot be settled", "req_1")]


def test_what_comes_while_all_workers_are_ending_is_settled_too() -> None:
    """Their commits return in one turn of the loop; the next settlement comes before the loop hears of their ends."""
    ledger = Ledger()
    ledger.may_write.clear()

    async def work() -> None:
        settler = Settler(ledger, Engine())
        first = [asyncio.create_task(settler.settle(settlement(number))) for number in range(settling.AT_ONCE)]
        await asyncio.sleep(0.02)
        ledger.may_write.set()
        time.sleep(0.05)  # all have returned when the loop goes on

        async def a_turn_later() -> None:
            await asyncio.sleep(0)
            await settler.settle(settlement(9))

        last = asyncio.create_task(a_turn_later())
        await asyncio.wait([*first, last])
        assert settler.n_waiting == 0

    run(work())
    assert "req_9" in ledger.written


def test_what_comes_after_a_drain_is_settled_and_after_the_close_its_figures_are_in_the_log() -> None:
    ledger, engine = Ledger(), Engine()

    async def work() -> None:
        settler = Settler(ledger, engine)
        await settler.drain(1)
        await settler.settle(settlement(1))
        await settler.drain(1)
        settler.close()
        await settler.settle(settlement(2))

    with capture_logs() as lines:
        run(work())
    assert ledger.written == ["req_1"]
    assert engine.told == [["req_1"]]
    assert [line["request_id"] for line in lines] == ["req_2"]


def test_a_fault_of_our_own_holds_nobody_up_either() -> None:
    ledger = Ledger([RuntimeError("a fault")])

    async def work() -> None:
        settler = Settler(ledger, Engine())
        await settler.settle(settlement(1))
        await settler.settle(settlement(2))
        await settler.drain(1)

    with capture_logs() as lines:
        run(work())
    assert ledger.written == ["req_2"]
    assert [(line["event"], line["request_id"]) for line in lines] == [("usage cannot be settled", "req_1")]


def test_a_drain_without_work_returns_at_once() -> None:
    engine = Engine()
    run(Settler(Ledger(), engine).drain(60))
    assert engine.told == []


def test_what_requests_have_cost_is_on_record_before_the_engine_forgets_them() -> None:
    ledger, engine = Ledger(), Engine(unknown={"req_1"})

    async def work() -> None:
        settler = Settler(ledger, engine)
        for number in range(3):
            await settler.settle(settlement(number))
        assert ledger.costs == []
        await settler.drain(1)

    run(work())
    assert ledger.costs == ["req_0", "req_2"]
    assert engine.told == [["req_0", "req_1", "req_2"]]


def test_the_cost_of_what_still_runs_for_a_step_comes_with_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "TELL_AFTER_S", 0.01)
    ledger, engine = Ledger(), Engine(running={"req_2"})

    async def work() -> None:
        settler = Settler(ledger, engine)
        for number in range(3):
            await settler.settle(settlement(number))
        while len(engine.told) < 2:
            await asyncio.sleep(0.005)

    run(work())
    assert ledger.costs == ["req_0", "req_1", "req_2"]
    assert engine.told == [["req_0", "req_1"], ["req_2"]]


@pytest.mark.parametrize("trouble", ["engine", "database"])
def test_costs_that_cannot_be_had_now_are_tried_again_and_the_bill_does_not_wait(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "TELL_AFTER_S", 0.01)
    failures: list[Exception] = [EngineUnavailable("away")] * 3 if trouble == "engine" else [LOCKED] * 3
    ledger, engine = Ledger(), Engine()
    (engine.failures if trouble == "engine" else ledger.cost_failures).extend(failures)

    async def work() -> None:
        settler = Settler(ledger, engine)
        await settler.settle(settlement(1))
        assert ledger.written == ["req_1"]
        while not engine.told:
            await asyncio.sleep(0.005)

    run(work())
    assert (ledger.costs, engine.told) == (["req_1"], [["req_1"]])


def test_costs_that_do_not_come_at_all_are_left_to_whoever_asks_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "TELL_AFTER_S", 0.001)
    ledger, engine = Ledger(cost_failures=[LOCKED] * 1000), Engine()

    async def work() -> None:
        settler = Settler(ledger, engine)
        await settler.settle(settlement(1))
        await asyncio.sleep(0.2)
        assert len(ledger.cost_failures) == 1000 - settling.TELL_TRIES
        await settler.drain(1)

    run(work())
    assert engine.told == []
    assert ledger.written == ["req_1"]


def test_costs_that_the_database_will_never_have_are_given_up() -> None:
    ledger, engine = Ledger(cost_failures=[IntegrityError("insert", {}, Exception("no such column"))]), Engine()

    async def work() -> None:
        settler = Settler(ledger, engine)
        await settler.settle(settlement(1))
        await settler.drain(1)

    with capture_logs() as lines:
        run(work())
    assert engine.told == [["req_1"]]
    assert [line["event"] for line in lines] == ["costs cannot be recorded"]


def test_an_engine_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "LAST_WORD_S", 0.05)
    ledger, engine = Ledger(), Engine()

    async def hang(request_ids: Sequence[str]) -> Sequence[RequestCounts]:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(engine, "counts", hang)

    async def work() -> None:
        settler = Settler(ledger, engine)
        await settler.settle(settlement(1))
        await settler.drain(1)

    run(work())
    assert (ledger.written, engine.told) == (["req_1"], [])
