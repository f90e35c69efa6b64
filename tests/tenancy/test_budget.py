"""N-66 and SLO-5: no budget is overshot by a token, whoever asks at once, dies in the middle, or whenever it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from lorikeet_engine.client import EngineClient
from lorikeet_platform.clock import SECOND, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import BudgetCounter, UsageRecord, UsageRollup
from lorikeet_platform.engine_link import EngineLink
from lorikeet_platform.usage.periods import month_start, next_month_start
from lorikeet_platform.usage.work.outbox import OutboxDrain
from lorikeet_platform.usage.work.reaper import Reaper
from lorikeet_platform.usage.work.rollups import RollUps
from tests.support.parallel import AtOnce
from tests.support.platform_parts import FakeClock, Tenant
from tests.support.served_model import ServedModel
from tests.support.stack import Stack, migrated_database, postgres, running_stack, wait_until
from tests.support.stack_place import Place, engine_in_process, on_stack, settings_in, two_in_process

PARALLEL, ROOM = 200, 50
PROMPT, ANSWER = "0123456789", 10
EST = len(PROMPT) + ANSWER
DECIDED_WITHIN_S = 90.0  # two hundred admissions on a machine that tests keep busy
MINUTES_LATER_US = 300 * SECOND


def ask_budget(place: Place, tenant: Tenant, index: int) -> int:
    """A status, or 0 where the gateway died."""
    try:
        answer = place.chat(tenant.secret, gateway=index % len(place.apis), content=PROMPT, max_tokens=ANSWER)
    except httpx.HTTPError:
        return 0
    if answer.status_code == 429:
        assert answer.json()["error"]["code"] == "insufficient_quota"
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers
    return answer.status_code


def a_budget(place: Place, n_requests: int) -> Tenant:
    """A tenant with room for so many, and no other limit that matters."""
    tenant = place.tenant()
    place.plenty(tenant)
    place.limit(tenant, monthly_tokens=n_requests * EST)
    return tenant


def inside(place: Place) -> int:
    return place.engine.state()["inside"]


def n_open(db: Database, tenant: Tenant) -> int:
    mine = select(func.count()).where(UsageRecord.tenant_id == tenant.id, UsageRecord.state == "open")
    with db.platform.read() as work:
        return work.scalar(mine) or 0


def check_the_sums(db: Database, tenant: Tenant, limit: int, *, period: int | None = None) -> int:
    """Records, both counters and the roll-ups say the same, and that is within the budget; how much it is."""
    RollUps(db).run()
    start = month_start(now_us()) if period is None else period
    tokens = UsageRecord.prompt_tokens + UsageRecord.completion_tokens
    rolled = UsageRollup.prompt_tokens + UsageRollup.completion_tokens
    in_month = (UsageRollup.bucket_start >= start, UsageRollup.bucket_start < next_month_start(start))
    with db.platform.read() as work:
        used = work.scalar(
            select(func.sum(tokens)).where(UsageRecord.tenant_id == tenant.id, UsageRecord.period_start == start)
        )
        counters = {
            row.subject_id: (row.reserved, row.settled)
            for row in work.scalars(
                select(BudgetCounter).where(BudgetCounter.tenant_id == tenant.id, BudgetCounter.period_start == start)
            )
        }
        for granularity in ("hour", "day"):
            mine = (UsageRollup.tenant_id == tenant.id, UsageRollup.granularity == granularity, *in_month)
            assert work.scalar(select(func.sum(rolled)).where(*mine)) == used
    total = int(used or 0)
    assert counters == {tenant.id: (0, total), tenant.key_id: (0, total)}
    assert total <= limit
    return total


def test_n_66_of_200_at_once_exactly_as_many_pass_as_the_budget_holds(place: Place) -> None:
    """The engine answers only when all are decided, so nothing is given back before."""
    tenant = a_budget(place, ROOM)
    place.engine.script(tenant.id, hold=True, tokens=0)
    asked = AtOnce(PARALLEL, lambda index: ask_budget(place, tenant, index))
    wait_until(lambda: asked.n_done == PARALLEL - ROOM and inside(place) == ROOM, DECIDED_WITHIN_S)
    place.engine.script(tenant.id, hold=False)
    statuses = asked.results()
    assert statuses.count(200) == ROOM
    assert statuses.count(429) == PARALLEL - ROOM
    wait_until(lambda: n_open(place.db, tenant) == 0)
    assert check_the_sums(place.db, tenant, ROOM * EST) == ROOM * EST
    assert ask_budget(place, tenant, 0) == 429


def test_n_66_what_was_reserved_and_not_used_is_there_for_others(place: Place) -> None:
    tenant = a_budget(place, 2)
    place.engine.script(tenant.id, tokens=2)
    statuses = [ask_budget(place, tenant, index) for index in range(4)]
    used = len(PROMPT) + 2
    assert statuses == [200, 200, 429, 429]  # 40 - 2 * 12 leaves 16: less than one more may use
    wait_until(lambda: n_open(place.db, tenant) == 0)
    assert check_the_sums(place.db, tenant, 2 * EST) == 2 * used


@pytest.fixture
def own_stack(model: ServedModel, short_folder: Path) -> Iterator[Stack]:
    """One that may be broken; the test itself does the worker's rounds, at a time that it chooses."""
    with running_stack(short_folder, model, with_worker=False) as stack:
        yield stack


@pytest.mark.slow
def test_n_66_a_gateway_killed_while_200_are_decided_neither_overshoots_nor_leaks_a_token(
    own_stack: Stack, model: ServedModel
) -> None:
    """What it had reserved comes back when it is found dead, and not a token is counted twice."""
    with on_stack(own_stack) as place:
        tenant = a_budget(place, ROOM)
        place.engine.script(tenant.id, hold=True, tokens=0)
        asked = AtOnce(PARALLEL, lambda index: ask_budget(place, tenant, index))
        wait_until(lambda: inside(place) >= ROOM // 3, DECIDED_WITHIN_S)
        own_stack.gateways[1].kill()
        wait_until(lambda: asked.n_done >= PARALLEL - ROOM, DECIDED_WITHIN_S)
        place.engine.script(tenant.id, hold=False)
        statuses = asked.results()
        assert statuses.count(0) > 0, "the gateway was killed too late to matter"
        assert statuses.count(200) <= ROOM
        settle_what_is_left(own_stack, model, tenant)
        used = check_the_sums(place.db, tenant, ROOM * EST)
        assert used >= statuses.count(200) * EST
        left = ROOM * EST - used
        asked_again = [ask_budget(place, tenant, 0) for _ in range(left // EST + 1)]
        assert asked_again == [200] * (left // EST) + [429]


def settle_what_is_left(stack: Stack, model: ServedModel, tenant: Tenant) -> None:
    """What a worker does minutes after a gateway died: the engine's counts first, then what nobody knows of."""
    link = EngineLink(
        lambda: EngineClient(endpoint=stack.environment["LORIKEET_ENGINE_ENDPOINT"], model_dir=model.folder)
    )
    later = now_us() + MINUTES_LATER_US
    with closing(link):
        wait_until(lambda: stack.engine.state()["inside"] == 0)

        def all_settled() -> bool:
            OutboxDrain(stack.db, link, clock=lambda: later).run()
            return stack.engine.state()["unsettled"] == 0

        wait_until(all_settled)
        Reaper(stack.db, link, clock=lambda: later).run()
    assert n_open(stack.db, tenant) == 0


@pytest.mark.slow
def test_n_66_a_month_that_ends_while_200_are_decided_has_its_own_budget_and_keeps_its_own_reservations(
    short_folder: Path, model: ServedModel
) -> None:
    """Two gateways with one clock, which is moved; what was reserved in the old month is settled in the old month."""
    new_month = next_month_start(now_us())
    clock = FakeClock(new_month - SECOND)
    with ExitStack() as ending:
        server = ending.enter_context(postgres(short_folder / "pg"))
        owner, *_ = ending.enter_context(migrated_database(server))
        settings = settings_in(short_folder, database_url=owner)
        engine = ending.enter_context(engine_in_process(settings, model))
        databases = [ending.enter_context(closing(Database(owner))) for _ in range(2)]
        place = ending.enter_context(two_in_process(settings, model, databases, engine, clock))
        tenant = a_budget(place, ROOM)
        engine.script(tenant.id, hold=True, tokens=0)
        asked = AtOnce(PARALLEL, lambda index: ask_budget(place, tenant, index))
        wait_until(lambda: inside(place) >= ROOM // 3, DECIDED_WITHIN_S)
        clock.now = new_month + SECOND
        wait_until(lambda: asked.n_done + inside(place) == PARALLEL, DECIDED_WITHIN_S)
        engine.script(tenant.id, hold=False)
        statuses = asked.results()
        wait_until(lambda: n_open(place.db, tenant) == 0)
        old = check_the_sums(place.db, tenant, ROOM * EST, period=month_start(new_month - SECOND))
        new = check_the_sums(place.db, tenant, ROOM * EST, period=new_month)
        assert 0 < old <= ROOM * EST
        assert new == ROOM * EST
        assert statuses.count(200) * EST == old + new
