"""The metrics of metering: what a gateway counts, beside what workers' rounds wrote down."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Chore
from lorikeet_platform.ids import new_id
from lorikeet_platform.usage.service import UsageService
from lorikeet_platform.usage.work import check, outbox, reaper
from lorikeet_platform.usage.work.figures import ledger_metrics
from lorikeet_platform.usage.work.reaper import Reaper
from tests.support.ledger import NOON, Asked, CountingEngine, Counts, a_payer, opened, settled
from tests.support.platform_parts import FakeClock


def shown(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Samples by name and label values; no family comes twice."""
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert len({family.name for family in families}) == len(families)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_a_gateway_counts_what_it_opens_settles_and_refuses(db: Database) -> None:
    registry = CollectorRegistry()
    usage = UsageService(db, metrics=ledger_metrics(registry, db), clock=FakeClock(NOON))
    payer = a_payer(db, "harbour")
    tickets = [
        usage.open(
            request_id=new_id("req"), principal=payer, resolved=Asked(), route="/", stream=False, n=1, est_tokens=100
        )
        for _ in range(3)
    ]
    for ticket in tickets[:2]:
        usage.settle(ticket.settlement(Counts(10, 5), "ok"))
    usage.settle(tickets[0].settlement(Counts(10, 6), "ok"))
    usage.observe_lag(0.2)
    samples = shown(registry)
    assert samples["lorikeet_usage_settled_total", "gateway"] == 2
    assert samples["lorikeet_usage_conflict_total",] == 1
    assert samples["lorikeet_usage_settle_lag_seconds_count",] == 1
    assert samples["lorikeet_budget_refusals_total",] == 0


def test_open_records_are_those_that_were_not_settled(db: Database) -> None:
    registry = CollectorRegistry()
    usage = UsageService(db, metrics=ledger_metrics(registry, db), clock=FakeClock(NOON))
    payer = a_payer(db, "harbour")
    options = {"principal": payer, "resolved": Asked(), "route": "/", "stream": False, "n": 1, "est_tokens": 100}
    first, _ = (usage.open(request_id=new_id("req"), **options) for _ in range(2))  # type: ignore[arg-type]
    usage.settle(first.settlement(Counts(10, 5), "ok"))
    assert shown(registry)["lorikeet_usage_open",] == 1


def test_what_workers_found_is_shown_from_their_rows(db: Database) -> None:
    registry = CollectorRegistry()
    ledger_metrics(registry, db)
    payer = a_payer(db, "harbour")
    opened(db, payer)
    with db.platform.unit_of_work() as work:
        work.add(
            Chore(name=reaper.NAME, due_at=0, result=dict(Reaper(db, CountingEngine(), FakeClock(NOON * 2)).run()))
        )
        work.add(Chore(name=outbox.NAME, due_at=0, result={"total_settled": 4, "total_conflicts": 2}))
        work.add(Chore(name=check.NAME, due_at=0, result={"mismatches": 3}))
    samples = shown(registry)
    assert samples["lorikeet_usage_reaped_total",] == 1
    assert samples["lorikeet_usage_settled_total", "reaper"] == 1
    assert samples["lorikeet_usage_settled_total", "engine_outbox"] == 4
    assert samples["lorikeet_usage_conflict_total",] == 2
    assert samples["lorikeet_ledger_mismatch",] == 3


def test_before_the_first_check_no_mismatch_is_claimed(db: Database) -> None:
    registry = CollectorRegistry()
    ledger_metrics(registry, db)
    assert ("lorikeet_ledger_mismatch",) not in shown(registry)


def test_without_a_database_the_gateways_own_figures_are_still_shown(db: Database) -> None:
    registry = CollectorRegistry()
    ledger_metrics(registry, db)
    payer = a_payer(db, "harbour")
    settled(db, payer, opened(db, payer))
    with db.platform.unit_of_work() as work:
        work.connection().exec_driver_sql("ALTER TABLE chores RENAME TO gone")
    assert shown(registry)["lorikeet_usage_open",] == 0
