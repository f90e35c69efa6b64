"""Opening, three settlers, roll-ups, crashes and new months in any order: the books agree after every step.

P-2, P-9 and checker 2 of the design: a record for every request, settled once; Σ roll-ups = Σ records = Σ budgets;
reserved = Σ open estimates; no budget above its limit.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import BudgetCounter
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.ids import new_id
from lorikeet_platform.usage.ledger import SettledBy, Settlement, settle
from lorikeet_platform.usage.periods import DAY
from lorikeet_platform.usage.service import Ticket, UsageService
from lorikeet_platform.usage.work.check import LedgerCheck
from lorikeet_platform.usage.work.outbox import OutboxDrain
from lorikeet_platform.usage.work.reaper import Reaper
from lorikeet_platform.usage.work.rollups import RollUps
from tests.support.ledger import NOON, Asked, CountingEngine, Counts, a_payer, another_key, books, counts_of, record_of
from tests.support.platform_parts import FakeClock

LIMIT, LIMIT_OF_KEY = 1_000, 450
SETTLERS: tuple[SettledBy, ...] = ("gateway", "engine_outbox", "reaper")
tokens = st.integers(1, 120)
which = st.integers(0, 1_000)


class Crash(Exception):
    """The process died before it committed."""


@dataclass
class Known:
    """What is true of a request, whatever the database says."""

    ticket: Ticket
    est: int
    figures: tuple[int, int] | None = None

    def within(self, prompt: int, completion: int) -> tuple[int, int]:
        """Figures with at least a token of answer; an engine never uses more than was reserved."""
        prompt = min(prompt, self.est - 1)
        return prompt, min(completion, self.est - prompt)


class LedgerMachine(RuleBasedStateMachine):
    database: Database

    @initialize()
    def begin(self) -> None:
        self.clock, self.engine = FakeClock(NOON), CountingEngine()
        first = a_payer(self.database, new_id("ten"), monthly=LIMIT)
        self.payers = [first, another_key(self.database, first, of_key=LIMIT_OF_KEY)]
        self.usage = UsageService(self.database, clock=self.clock)
        self.known: list[Known] = []
        self.is_rolled_up = True

    @rule(number=which, est=st.integers(2, 300))
    def open(self, number: int, est: int) -> None:
        payer = self.payers[number % 2]
        with suppress(PlatformError):  # the month's tokens are used up
            ticket = self.usage.open(
                request_id=new_id("req"),
                principal=payer,
                resolved=Asked(),
                route="/v1/completions",
                stream=False,
                n=1,
                est_tokens=est,
            )
            self.known.append(Known(ticket, est))

    @precondition(lambda self: self.known)
    @rule(number=which, prompt=tokens, completion=tokens, by=st.sampled_from(SETTLERS), crashes=st.booleans())
    def settle(self, number: int, prompt: int, completion: int, by: SettledBy, crashes: bool) -> None:
        known = self.known[number % len(self.known)]
        prompt, completion = known.within(prompt, completion)
        settlement = Settlement(
            tenant_id=known.ticket.tenant_id,
            request_id=known.ticket.request_id,
            outcome="ok",
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=0,
            settled_by=by,
            settled_at=self.clock(),
        )
        try:
            with self.database.tenant(settlement.tenant_id).unit_of_work() as work:
                verdict = settle(work, settlement)
                if crashes:
                    raise Crash
        except Crash:
            return
        assert (verdict == "settled") == (known.figures is None)
        if known.figures is None:
            known.figures, self.is_rolled_up = (prompt, completion), False
        elif known.figures == (prompt, completion):
            assert verdict == "already"

    @precondition(lambda self: self.known)
    @rule(number=which, prompt=tokens, completion=tokens)
    def drain(self, number: int, prompt: int, completion: int) -> None:
        known = self.known[number % len(self.known)]
        prompt, completion = known.within(prompt, completion)
        told = counts_of(known.ticket.tenant_id, known.ticket.request_id, prompt=prompt, completion=completion)
        self.engine.remember(told)
        OutboxDrain(self.database, self.engine, self.clock).run()
        if known.figures is None:
            known.figures, self.is_rolled_up = (prompt, completion), False

    @rule()
    def reap(self) -> None:
        self.clock.advance(121)
        Reaper(self.database, self.engine, self.clock).run()
        for known in self.known:
            if known.figures is None:
                known.figures, self.is_rolled_up = (0, 0), False

    @rule()
    def roll_up(self) -> None:
        RollUps(self.database, self.clock).run()
        assert LedgerCheck(self.database, self.clock).run()["mismatches"] == 0
        self.is_rolled_up = True

    @rule(days=st.sampled_from([0.03, 0.5, 20]))
    def wait(self, days: float) -> None:
        self.clock.now += round(days * DAY)

    @invariant()
    def the_books_agree(self) -> None:
        now = books(self.database)
        assert now.agree
        if self.is_rolled_up:
            assert now.are_rolled_up

    @invariant()
    def no_budget_is_above_its_limit(self) -> None:
        limits = {self.payers[0].tenant_id: LIMIT, self.payers[1].subject_id: LIMIT_OF_KEY}
        with self.database.platform.read() as work:
            for row in work.query(BudgetCounter).filter(BudgetCounter.subject_id.in_(limits)):
                assert row.settled + row.reserved <= limits[row.subject_id]

    def teardown(self) -> None:
        """Every request is on record, and says what the first settlement said."""
        for known in self.known:
            record = record_of(self.database, known.ticket.request_id)
            if known.figures is None:
                assert record.state == "open"
            else:
                assert (record.prompt_tokens, record.completion_tokens) == known.figures
        for known in self.known:
            if known.figures is None:
                self.usage.settle(known.ticket.settlement(Counts(1, 1), "ok"))
        RollUps(self.database, self.clock).run()


def test_p2_the_books_agree_whatever_happens_in_whatever_order(database: Database) -> None:
    machine = type("Machine", (LedgerMachine,), {"database": database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=8,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
