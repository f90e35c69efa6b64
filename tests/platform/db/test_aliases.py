"""Changes of one adapter at once, on both databases: none is lost, and who decided on an older revision is told."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import select

from lorikeet_platform.api_keys.service import create_key
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, AliasChange
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.aliasing.aliases import AliasKey, Change, targets_of
from lorikeet_platform.registry.aliasing.changes import perform, plan_set
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Step
from lorikeet_platform.tenants.service import create_tenant
from tests.support import platform_parts


@pytest.fixture
def live(database: Database) -> AliasKey:
    """`live` at version 1 of three ready ones."""
    with database.platform.unit_of_work() as work:
        tenant = create_tenant(work, slug="harbour", display_name=None, now=1)
        key, secret = create_key(work, Pepper(1, {1: b"p" * 32}), tenant_id=tenant.id, name="first", now=1)
        owner = platform_parts.Tenant(tenant.id, "harbour", key.id, secret)
        for number in (1, 2, 3):
            version = platform_parts.a_version(work, owner, name="pirate", number=number, live=number == 1)
    return AliasKey(tenant.id, version.adapter_id, "live")


def at_once(*steps: Callable[[], None]) -> list[str]:
    """Runs all in threads; returns the codes of those that were refused, and "done" for the others."""
    outcomes: list[str] = []
    start = threading.Barrier(len(steps))

    def run(step: Callable[[], None]) -> None:
        start.wait(10)
        try:
            step()
        except PlatformError as error:
            outcomes.append(error.code)
        else:
            outcomes.append("done")

    threads = [threading.Thread(target=run, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes)


def pointing(database: Database, key: AliasKey, *numbers: int, expected: int | None = None) -> Callable[[], None]:
    shares = [(number, 100 // len(numbers)) for number in numbers]

    def point() -> None:
        with database.platform.read() as work:
            change = Change(actor="key_x", now=1, expected=expected)
            planned = plan_set(work, key, shares, sticky="none", guard=None, change=change)
        with database.platform.unit_of_work() as work:
            perform(work, planned)

    return point


def retiring(database: Database, key: AliasKey, number: int) -> Callable[[], None]:
    def retire() -> None:
        step = Step(tenant_id=key.tenant_id, adapter="pirate", number=number, actor="key_x", now=1)
        with database.platform.unit_of_work() as work:
            lifecycle.retire(work, step, keep_us=1)

    return retire


def revisions(database: Database) -> list[int]:
    with database.platform.read() as work:
        return list(work.scalars(select(AliasChange.revision).order_by(AliasChange.revision)))


def test_of_changes_at_once_that_know_the_same_revision_one_is_made(database: Database, live: AliasKey) -> None:
    outcomes = at_once(*(pointing(database, live, number, expected=1) for number in (2, 3)))
    assert outcomes == ["done", "revision_conflict"]
    assert revisions(database) == [1, 2]


def test_changes_at_once_that_know_nothing_all_count(database: Database, live: AliasKey) -> None:
    steps = [pointing(database, live, *numbers) for numbers in ((2,), (3,), (1, 2), (1, 3))]
    assert at_once(*steps) == ["done"] * 4
    assert revisions(database) == [1, 2, 3, 4, 5]


def test_an_alias_that_is_made_twice_at_once_is_one(database: Database, live: AliasKey) -> None:
    best = AliasKey(live.tenant_id, live.adapter_id, "best")
    outcomes = at_once(*(pointing(database, best, number, expected=0) for number in (2, 3)))
    assert outcomes == ["done", "revision_conflict"]


def test_no_alias_ends_up_at_a_version_that_is_retired_at_the_same_moment(database: Database, live: AliasKey) -> None:
    for _ in range(3):
        outcomes = at_once(pointing(database, live, 2), retiring(database, live, 2))
        assert outcomes == ["done", "state_conflict"]
        with database.platform.read() as work:
            ready = set(work.scalars(select(AdapterVersion.number).where(AdapterVersion.state == "ready")))
            assert {target.number for target in targets_of(work, live)} <= ready
        with database.platform.unit_of_work() as work:
            step = Step(tenant_id=live.tenant_id, adapter="pirate", number=2, actor="key_x", now=0)
            lifecycle.restore(work, step)
        pointing(database, live, 1)()
