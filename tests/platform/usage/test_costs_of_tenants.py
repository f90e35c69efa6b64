"""Issue 7, "Done when": what tenants are told that they cost adds up to what the engine did."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from starlette.types import ASGIApp, Message

from lorikeet_engine.client import EngineClient
from lorikeet_engine.cost_vector import COSTS, CostVector
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.clock import now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import UsageCost, UsageRecord
from tests.engine.socket.conftest import RunningEngine
from tests.support.ascii_tokenizer import save_ascii_tokenizer
from tests.support.costs import summed
from tests.support.platform_parts import BASE, Tenant, a_tenant, a_version, limit_tenant, make_context

N_REQUESTS, AT_ONCE = 500, 24
TENANTS = ("harbour", "orchard", "meadow")


@pytest.fixture
def engine() -> Iterator[RunningEngine]:
    """Its steps take their time and its KV pool is too small for all that may run, so that it has to preempt."""
    with tempfile.TemporaryDirectory(prefix="lk-") as folder:
        running = RunningEngine(
            f"ipc://{folder}/e", n_blocks=30, n_host_slots=12, max_num_seqs=16, max_num_batched_tokens=64
        )
        runner = running.parts.runner
        runner.step_s, execute = 0.004, runner.execute

        def slowly(plan: StepPlan) -> StepResult:
            time.sleep(runner.step_s)
            return execute(plan)

        runner.execute = slowly  # type: ignore[method-assign]
        yield running
        running.stop()


class Caller:
    """One request of raw ASGI, whose caller may hang up."""

    def __init__(self, app: ASGIApp, tenant: Tenant, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": content})
        headers = {**tenant.auth, "content-type": "application/json", "content-length": str(len(content))}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/completions",
            "raw_path": b"/v1/completions",
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.status = 0
        self.has_begun = asyncio.Event()  # to be answered, where it is streamed
        self.task = asyncio.ensure_future(app(scope, self._incoming.get, self._send))

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message.get("body"):
            self.has_begun.set()

    def hang_up(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})


async def ask(app: ASGIApp, tenant: Tenant, draw: random.Random) -> int:
    """One of many kinds of request; some of their callers leave while they are answered."""
    prompt = "abcdefgh" * draw.randint(1, 4) + "xyz"[: draw.randint(0, 3)]
    leaves = draw.random() < 0.2
    body = {
        "model": draw.choice([BASE, BASE, "pirate", "haiku"]),
        "prompt": prompt,
        "max_tokens": 60 if leaves else draw.randint(1, 24),
        "n": draw.choice([1, 1, 1, 2]),
        "stream": leaves or draw.random() < 0.3,
    }
    caller = Caller(app, tenant, body)
    if leaves:
        begun = asyncio.ensure_future(caller.has_begun.wait())
        await asyncio.wait([begun, caller.task], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        caller.hang_up()
    await caller.task
    return caller.status


async def ask_all(context: PlatformContext, tenants: list[Tenant]) -> list[int]:
    app, draw, places = create_tenant_app(context), random.Random(7), asyncio.Semaphore(AT_ONCE)

    async def in_turn(tenant: Tenant) -> int:
        async with places:
            return await ask(app, tenant, draw)

    client = context.engine_client
    await client.start()
    try:
        await client.wait_ready(10)
        async with app.router.lifespan_context(app):
            statuses = await asyncio.gather(*(in_turn(draw.choice(tenants)) for _ in range(N_REQUESTS)))
            async with asyncio.timeout(30):
                while (await client.stats()).unsettled:
                    await asyncio.sleep(0.05)
    finally:
        await client.stop()
    return statuses


def by_tenant(db: Database) -> dict[str, CostVector]:
    sums = [func.sum(getattr(UsageCost, name)) for name in COSTS]
    with db.platform.read() as work:
        rows = work.execute(select(UsageCost.tenant_id, *sums).group_by(UsageCost.tenant_id)).all()
    return {row[0]: CostVector(**dict(zip(COSTS, row[1:], strict=True))) for row in rows}


def test_tenants_costs_in_the_books_sum_to_the_engines_after_five_hundred_requests(
    tmp_path: Path, db: Database, engine: RunningEngine
) -> None:
    save_ascii_tokenizer(tmp_path)
    context = make_context(tmp_path, db, now_us)
    client = EngineClient(endpoint=engine.endpoint, model_dir=tmp_path)
    context = replace(context, engine_client=client)
    tenants = [a_tenant(context, slug) for slug in TENANTS]
    for tenant in tenants:
        limit_tenant(db, tenant.id, rpm=(100_000, 100_000), tpm=(10**9, 10**9), concurrent=64, queue_depth=64)
        with db.platform.unit_of_work() as work:
            for name in ("pirate", "haiku"):
                a_version(work, tenant, name=name)
    statuses = asyncio.run(ask_all(context, tenants))
    assert set(statuses) == {200}
    with db.platform.read() as work:
        outcomes = dict(work.execute(select(UsageRecord.outcome, func.count()).group_by(UsageRecord.outcome)).all())
        n_costs = work.scalar(select(func.count()).select_from(UsageCost))
    assert outcomes.keys() == {"ok", "client_cancelled"}
    assert outcomes["client_cancelled"] > 30
    assert n_costs == N_REQUESTS
    scheduler = engine.parts.loop.scheduler
    assert scheduler.counters.preemptions["swap"] + scheduler.counters.preemptions["recompute"] > 3
    costs, totals = by_tenant(db), scheduler.costing.totals()
    assert costs.keys() == {tenant.id for tenant in tenants}
    together = summed(costs.values())
    for name in COSTS:
        assert getattr(together, name) == pytest.approx(getattr(totals, name), rel=0.01), name
        assert min(getattr(cost, name) for cost in costs.values()) > 0 or name in ("wasted_flops", "swap_bytes"), name
