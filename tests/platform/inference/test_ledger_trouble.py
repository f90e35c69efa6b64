"""Opening records while the database is slow or fails: neighbours go on, and nothing stays reserved."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from lorikeet_platform.db.tables import BudgetCounter
from lorikeet_platform.usage.service import Ticket, UsageService
from tests.platform.inference.conftest import CHAT, Gateway


async def post(gateway: Gateway, tenant: str) -> int:
    transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        key = {"authorization": f"Bearer {gateway.keys[tenant]}"}
        return (await client.post("/v1/chat/completions", json=CHAT, headers=key)).status_code


def test_requests_that_wait_for_their_tenants_budget_keep_nobody_else_waiting(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_record, may_open, n_waiting = UsageService.open, threading.Event(), threading.Semaphore(0)

    def open_late(usage: UsageService, **asked: Any) -> Ticket:
        if asked["principal"].tenant_slug == "harbour":
            n_waiting.release()
            assert may_open.wait(20)
        return open_record(usage, **asked)

    monkeypatch.setattr(UsageService, "open", open_late)

    async def scenario() -> None:
        waiting = [asyncio.create_task(post(gateway, "harbour")) for _ in range(12)]
        while not n_waiting.acquire(blocking=False):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert await asyncio.wait_for(post(gateway, "orchard"), 5) == 200
        may_open.set()
        assert await asyncio.gather(*waiting) == [200] * 12

    asyncio.run(scenario())
    assert {record.state for record in gateway.usage()} == {"settled"}


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_record_of_which_is_not_known_whether_it_was_kept_reserves_nothing_in_the_end(
    gateway: Gateway, is_kept: bool
) -> None:
    """The connection breaks between the commit and its answer."""
    gateway.post(CHAT)  # its tenant has counters now
    opened = [record.request_id for record in gateway.usage()]

    def break_off(connection: Any) -> None:
        event.remove(gateway.db.engine, "commit", break_off)
        if is_kept:
            connection.exec_driver_sql("COMMIT")
        raise OperationalError("COMMIT", None, Exception("connection lost"))

    open_record = UsageService.open

    def open_and_lose(usage: UsageService, **asked: Any) -> Ticket:
        event.listen(gateway.db.engine, "commit", break_off)
        return open_record(usage, **asked)

    async def scenario() -> int:
        status = await post(gateway, "harbour")
        await gateway.service.drain(0)
        return status

    with pytest.MonkeyPatch.context() as patch, capture_logs() as lines:
        patch.setattr(UsageService, "open", open_and_lose)
        assert asyncio.run(scenario()) == 503
    records = [record for record in gateway.usage() if record.request_id not in opened]
    assert [(record.state, record.outcome) for record in records] == [("settled", "shed")] * is_kept
    with gateway.db.platform.read() as session:
        assert set(session.scalars(select(BudgetCounter.reserved))) == {0}
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["usage may be recorded or not"]
    assert gateway.engine.generations[1:] == []
