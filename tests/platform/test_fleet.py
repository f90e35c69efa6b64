"""Gateways say that they are there, and others notice when one no longer does."""

from __future__ import annotations

import threading
import time

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from lorikeet_platform import fleet
from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Gateway
from lorikeet_platform.fleet import GatewayPresence, count_live, forget_dead
from tests.support.platform_parts import FakeClock


def rows(db: Database) -> set[str]:
    with db.platform.read() as work:
        return set(work.scalars(select(Gateway.id)))


def live(db: Database, clock: FakeClock) -> int:
    with db.platform.read() as work:
        return count_live(work, clock.now)


def test_a_gateway_is_there_from_its_application_s_start_to_its_clean_stop(context: PlatformContext) -> None:
    with TestClient(create_tenant_app(context)):
        assert rows(context.db) == {context.gateway_id}
    assert rows(context.db) == set()


def test_gateways_count_each_other_and_not_one_that_was_killed(db: Database, clock: FakeClock) -> None:
    first, second = (GatewayPresence(db, clock=clock) for _ in range(2))
    assert first.live == 1
    for presence in (first, second, first):
        presence.beat()
    assert (first.live, second.live, live(db, clock)) == (2, 2, 2)
    clock.advance(14)
    first.beat()
    clock.advance(2)
    first.beat()
    assert (first.live, live(db, clock)) == (1, 1)
    assert rows(db) == {first.gateway_id, second.gateway_id}  # its records are still to be settled


def test_a_gateway_that_everybody_forgot_is_there_again_with_its_next_beat(db: Database, clock: FakeClock) -> None:
    presence = GatewayPresence(db, clock=clock)
    presence.beat()
    clock.advance(599)
    with db.platform.unit_of_work() as work:
        assert forget_dead(work, clock.now) == 0
    clock.advance(1)
    with db.platform.unit_of_work() as work:
        assert forget_dead(work, clock.now) == 1
    presence.beat()
    assert rows(db) == {presence.gateway_id}


def test_a_database_that_does_not_answer_stops_no_gateway_and_leaves_the_last_count(
    db: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "BEAT_EVERY_S", 0.01)
    first, second = (GatewayPresence(db, clock=clock) for _ in range(2))
    first.beat()
    is_asked = threading.Event()

    def no_answer() -> None:
        is_asked.set()
        raise OperationalError("", {}, Exception())

    with monkeypatch.context() as patch:
        patch.setattr(db.platform, "unit_of_work", no_answer)
        second.start()
        assert is_asked.is_set()
        assert second.live == 1
    deadline = time.monotonic() + 5
    while second.live != 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with monkeypatch.context() as patch:
        patch.setattr(db.platform, "unit_of_work", no_answer)
        second.stop()
        second.beat()
    assert second.live == 2
