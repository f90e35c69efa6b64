"""One record per admitted request, reserved in two budgets, settled exactly once."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from structlog.testing import capture_logs

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import UsageRecord
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.ids import new_id
from lorikeet_platform.registry.resolve import resolve_model
from lorikeet_platform.usage.ledger import Outcome
from lorikeet_platform.usage.service import Ticket
from tests.support.platform_parts import BASE, Tenant, a_version


@dataclass(frozen=True)
class Counts:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@pytest.fixture
def principal(context: PlatformContext, harbour: Tenant) -> Principal:
    return asyncio.run(context.authenticator.authenticate(harbour.auth["authorization"]))


def open_ticket(context: PlatformContext, principal: Principal, model: str = BASE) -> Ticket:
    with context.db.platform.read() as session:
        resolved = resolve_model(session, principal.tenant_id, model, BASE)
    return context.usage.open(
        request_id=new_id("req"),
        principal=principal,
        resolved=resolved,
        route="/v1/completions",
        stream=False,
        n=1,
        est_tokens=100,
    )


def records(context: PlatformContext) -> list[UsageRecord]:
    with context.db.platform.read() as session:
        return list(session.scalars(select(UsageRecord)))


def test_a_record_says_who_asked_for_which_version(
    context: PlatformContext, principal: Principal, harbour: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate")
    open_ticket(context, principal, "pirate")
    [record] = records(context)
    assert (record.tenant_id, record.key_id, record.version_id) == (harbour.id, harbour.key_id, version.id)
    assert (record.subject_id, record.est_tokens, record.n) == (harbour.key_id, 100, 1)
    assert (record.state, record.outcome, record.adapter_id) == ("open", None, version.adapter_id)


def test_settling_twice_bills_once(context: PlatformContext, principal: Principal) -> None:
    ticket = open_ticket(context, principal)
    assert context.usage.settle(ticket.settlement(Counts(10, 20, 8), "ok")) == "settled"
    assert context.usage.settle(ticket.settlement(Counts(10, 20, 8), "ok")) == "already"
    with capture_logs() as lines:
        assert context.usage.settle(ticket.settlement(Counts(99, 99), "server_error")) == "conflict"
    [record] = records(context)
    assert (record.state, record.outcome) == ("settled", "ok")
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (10, 20, 8)
    assert [line["request_id"] for line in lines] == [record.request_id]


def test_of_many_settlers_at_once_one_wins(context: PlatformContext, principal: Principal) -> None:
    ticket = open_ticket(context, principal)
    wins: list[int] = []

    def settle(n: int) -> None:
        if context.usage.settle(ticket.settlement(Counts(n, n), "ok")) == "settled":
            wins.append(n)

    threads = [threading.Thread(target=settle, args=(n,)) for n in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.prompt_tokens for record in records(context)] == wins


@pytest.mark.parametrize("outcome", ["ok", "client_cancelled", "server_error", "deadline", "revoked", "shed"])
def test_every_outcome_can_be_written(context: PlatformContext, principal: Principal, outcome: Outcome) -> None:
    settlement = open_ticket(context, principal).settlement(Counts(0, 0), outcome)
    assert context.usage.settle(settlement) == "settled"


def test_a_record_is_of_the_version_that_answered(
    context: PlatformContext, principal: Principal, harbour: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate")
        second = a_version(work, harbour, name="pirate", number=2, live=False)
    ticket = open_ticket(context, principal, "pirate")
    with context.db.platform.read() as session:
        answered_by = resolve_model(session, principal.tenant_id, "pirate:2", BASE)
    context.usage.settle(ticket.settlement(Counts(1, 1), "ok", answered_by=answered_by, first_token_at=5))
    [record] = records(context)
    assert (record.version_id, record.first_token_at) == (second.id, 5)


def test_what_cannot_be_metered_is_not_served(context: PlatformContext, principal: Principal) -> None:
    with context.db.platform.unit_of_work() as work:
        work.connection().exec_driver_sql("ALTER TABLE usage_records RENAME TO gone")
    with capture_logs() as lines, pytest.raises(PlatformError, match="metering_unavailable"):
        open_ticket(context, principal)
    assert [line["log_level"] for line in lines] == ["error"]
    assert lines[0]["request_id"].startswith("req_")
    assert isinstance(lines[0]["exc_info"], SQLAlchemyError)
