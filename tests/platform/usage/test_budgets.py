"""Budgets: reserved before, settled after, never above their limit, whoever races whom."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import BudgetCounter, DirtyBucket
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.ids import new_id
from lorikeet_platform.usage.service import Ticket, UsageService
from lorikeet_platform.web.errors import error_headers
from tests.support.ledger import HOUR_US, NOON, Asked, Counts, a_payer, another_key, books, opened, record_of, settled
from tests.support.platform_parts import FakeClock

LAST_OF_JANUARY = 1_769_903_999_000_000  # 2026-01-31T23:59:59Z


def usage_of(db: Database, clock: FakeClock | None = None) -> UsageService:
    return UsageService(db, clock=clock or FakeClock(NOON))


def ask(usage: UsageService, payer: Principal, est: int = 500) -> Ticket:
    return usage.open(
        request_id=new_id("req"),
        principal=payer,
        resolved=Asked(),
        route="/v1/completions",
        stream=False,
        n=1,
        est_tokens=est,
    )


def refusal(usage: UsageService, payer: Principal, est: int = 500) -> PlatformError:
    with pytest.raises(PlatformError) as caught:
        ask(usage, payer, est)
    return caught.value


def counter(db: Database, payer: Principal, *, of_key: bool = False) -> tuple[int, int]:
    subject = payer.subject_id if of_key else payer.tenant_id
    with db.platform.read() as work:
        row = work.query(BudgetCounter).filter_by(subject_id=subject).one()
    return row.reserved, row.settled


def test_an_estimate_is_reserved_and_what_was_used_is_settled_in_both_budgets(database: Database) -> None:
    payer = a_payer(database, "harbour")
    usage = usage_of(database)
    ticket = ask(usage, payer, 500)
    assert counter(database, payer) == counter(database, payer, of_key=True) == (500, 0)
    usage.settle(ticket.settlement(Counts(100, 20), "ok"))
    assert counter(database, payer) == counter(database, payer, of_key=True) == (0, 120)
    with database.platform.read() as work:
        marks = [(row.granularity, row.bucket_start, row.marks) for row in work.query(DirtyBucket)]
    assert marks == [("hour", NOON, 1)]


def test_r20_what_is_refused_leaves_no_record_and_no_reservation(database: Database) -> None:
    payer = a_payer(database, "harbour", monthly=400)
    usage = usage_of(database)
    assert refusal(usage, payer).code == "insufficient_quota"
    assert counter(database, payer) == counter(database, payer, of_key=True) == (0, 0)
    assert books(database).settled_in_records == 0
    assert usage.metrics.refusals._value.get() == 1


def test_a_refusal_says_whose_tokens_are_used_up_until_when_and_is_not_retried(database: Database) -> None:
    payer = a_payer(database, "harbour", monthly=10_000, of_key=600)
    usage = usage_of(database)
    ask(usage, payer, 250)
    error = refusal(usage, payer)
    assert (error.kind.status, error.kind.type) == (429, "insufficient_quota")
    assert error.message == (
        "The request may use 500 tokens; of the API key's 600 tokens a month 350 are left until 2026-02-01T00:00:00Z."
    )
    headers = error_headers(error)
    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers


def test_a_keys_budget_does_not_hold_back_another_key(database: Database) -> None:
    payer = a_payer(database, "harbour", monthly=10_000, of_key=600)
    usage = usage_of(database)
    ask(usage, payer)
    assert "API key's" in refusal(usage, payer).message
    other = another_key(database, payer)
    for _ in range(19):
        ask(usage, other)
    assert "the tenant's 10000 tokens a month 0 are left" in refusal(usage, other).message
    assert counter(database, payer) == (10_000, 0)


@pytest.mark.parametrize("limits", [{"monthly": 0}, {"of_key": 0}])
def test_a_budget_of_zero_is_blocked(database: Database, limits: dict[str, int]) -> None:
    assert refusal(usage_of(database), a_payer(database, "harbour", **limits), 1).code == "insufficient_quota"


def test_the_last_token_may_be_used(database: Database) -> None:
    payer = a_payer(database, "harbour", monthly=1_000)
    usage = usage_of(database)
    usage.settle(ask(usage, payer, 600).settlement(Counts(300, 300), "ok"))
    ask(usage, payer, 400)
    assert refusal(usage, payer, 1).code == "insufficient_quota"


def test_n66_of_200_requests_at_once_exactly_the_50_that_there_is_room_for_are_admitted(database: Database) -> None:
    payer = a_payer(database, "harbour", monthly=50 * 500)
    services = [usage_of(database) for _ in range(3)]
    results: Counter[str] = Counter()
    starting, lock = threading.Barrier(20), threading.Lock()

    def run(number: int) -> None:
        starting.wait()
        for _ in range(10):
            try:
                ask(services[number % 3], payer)
                result = "admitted"
            except PlatformError as error:
                result = error.code
            with lock:
                results[result] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"admitted": 50, "insufficient_quota": 150}
    assert counter(database, payer) == (25_000, 0)
    assert books(database).agree


def test_n66_budgets_stay_exact_while_keys_open_and_settle_at_once(database: Database) -> None:
    first = a_payer(database, "harbour", monthly=4_000)
    payers = [first, another_key(database, first), another_key(database, first, of_key=900)]
    usage, results = usage_of(database), Counter[str]()

    def run(number: int) -> None:
        for turn in range(12):
            try:
                ticket = ask(usage, payers[number % 3], 300)
            except PlatformError as error:
                results[error.code] += 1
                continue
            usage.settle(ticket.settlement(Counts(number, turn), "ok"))
            results["settled"] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = books(database)
    assert set(results) <= {"settled", "insufficient_quota"}
    assert after.agree
    assert after.open_estimates == 0
    assert after.settled_in_records <= 4_000


def test_a_request_is_of_the_month_that_it_began_in(database: Database) -> None:
    payer, clock = a_payer(database, "harbour", monthly=1_000), FakeClock(LAST_OF_JANUARY)
    usage = usage_of(database, clock)
    late = ask(usage, payer, 900)
    assert refusal(usage, payer, 200).code == "insufficient_quota"
    clock.advance(2)
    early = ask(usage, payer, 900)
    usage.settle(late.settlement(Counts(100, 50), "ok"))
    with database.platform.read() as work:
        rows = work.query(BudgetCounter).filter_by(subject_id=payer.tenant_id).order_by(BudgetCounter.period_start)
        assert [(row.reserved, row.settled) for row in rows] == [(0, 150), (900, 0)]
    assert record_of(database, early.request_id).period_start - record_of(database, late.request_id).period_start == (
        31 * 24 * HOUR_US
    )
    assert books(database).agree


def test_one_tenants_budget_is_not_anothers(database: Database) -> None:
    rich, poor = a_payer(database, "harbour"), a_payer(database, "orchard", monthly=100)
    usage = usage_of(database)
    ask(usage, rich)
    assert refusal(usage, poor).code == "insufficient_quota"


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (("gateway", 10, 5), ("engine_outbox", 10, 5), "already"),
        (("gateway", 10, 5), ("engine_outbox", 10, 8), "already"),  # three tokens lay behind a stop string
        (("gateway", 10, 5), ("engine_outbox", 10, 4), "conflict"),  # delivered what was never generated
        (("engine_outbox", 10, 8), ("gateway", 10, 5), "already"),
        (("engine_outbox", 10, 4), ("gateway", 10, 5), "conflict"),
        (("reaper", 0, 0), ("gateway", 10, 5), "conflict"),
        (("gateway", 10, 5), ("gateway", 10, 6), "conflict"),
        (("engine_outbox", 10, 5), ("reaper", 10, 6), "conflict"),
    ],
)
def test_who_settles_second_changes_nothing_and_is_told_whether_it_agrees(
    database: Database, first: tuple[str, int, int], second: tuple[str, int, int], verdict: str
) -> None:
    payer = a_payer(database, "harbour")
    request_id = opened(database, payer)
    by, prompt, completion = first
    assert settled(database, payer, request_id, by=by, prompt=prompt, completion=completion) == "settled"  # type: ignore[arg-type]
    before = books(database)
    by, prompt, completion = second
    assert settled(database, payer, request_id, by=by, prompt=prompt, completion=completion) == verdict  # type: ignore[arg-type]
    assert books(database) == before
    assert record_of(database, request_id).settled_by == first[0]


@pytest.mark.parametrize("lost_first", [True, False])
@pytest.mark.parametrize(
    ("delivered", "verdict"),
    [
        ((10, 2, 100), "already"),  # generated after the engine's last note
        ((10, 2, 64), "already"),
        ((10, 2, 60), "already"),  # four tokens lay behind a stop string
        ((0, 0, 0), "already"),
        ((11, 2, 100), "conflict"),
        ((10, 3, 100), "conflict"),
    ],
)
def test_what_a_lost_engine_noted_last_is_the_least_that_was_used(
    database: Database, lost_first: bool, delivered: tuple[int, int, int], verdict: str
) -> None:
    payer = a_payer(database, "harbour")
    request_id = opened(database, payer)

    def lost() -> str:
        figures = {"prompt": 10, "cached": 2, "completion": 64}
        return settled(database, payer, request_id, by="engine_outbox", outcome="server_error", **figures)

    def gateway() -> str:
        prompt, cached, completion = delivered
        return settled(database, payer, request_id, prompt=prompt, cached=cached, completion=completion)

    first, second = (lost, gateway) if lost_first else (gateway, lost)
    assert (first(), second()) == ("settled", verdict)


def test_what_was_billed_as_nothing_because_nobody_knew_of_it_is_a_conflict_with_what_its_gateway_says(
    database: Database,
) -> None:
    payer = a_payer(database, "harbour")
    request_id = opened(database, payer)
    settled(database, payer, request_id, by="reaper", outcome="server_error", prompt=0, completion=0)
    assert settled(database, payer, request_id, prompt=10, completion=5) == "conflict"


def test_what_was_never_opened_is_unknown_also_when_it_is_another_tenants(database: Database) -> None:
    payer, other = a_payer(database, "harbour"), a_payer(database, "orchard")
    request_id = opened(database, other)
    assert settled(database, payer, new_id("req")) == "unknown"
    assert settled(database, payer, request_id) == "unknown"
    assert record_of(database, request_id).state == "open"
