"""A canary that does worse than what it is compared with goes back by itself, and not before there is proof."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion, AliasChange
from lorikeet_platform.registry.aliasing.aliases import (
    AliasKey,
    Change,
    Pointing,
    Target,
    history_of,
    point,
    targets_of,
)
from lorikeet_platform.registry.schemas import Guard
from lorikeet_platform.registry.work.guard import AliasGuards, Figures, complaint, figures_of
from tests.support.platform_parts import FakeClock, Tenant, a_version
from tests.support.usage_rows import usage_record

Share = Callable[..., None]
Serve = Callable[..., None]
Weights = Callable[[], dict[int, int]]

MS = 1_000
GUARD: dict[str, Any] = {"max_error_rate": 0.1, "max_ttft_ratio": 2.0, "min_requests": 20}


@pytest.mark.parametrize(
    ("canary", "other", "word"),
    [
        (Figures(199, 199, 1), Figures(1000, 0, 1), None),  # too few to judge
        (Figures(200, 20, 1), Figures(1000, 0, 1), None),  # at the bound
        (Figures(200, 21, 1), Figures(1000, 0, 1), "21 of 200"),
        (Figures(200, 21, 1), Figures(1000, 200, 1), None),  # the other fails more: it is not the canary
        (Figures(200, 0, 200 * MS), Figures(200, 0, 100 * MS), None),  # at the bound
        (Figures(200, 0, 201 * MS), Figures(200, 0, 100 * MS), "201 ms"),
        (Figures(200, 0, 201 * MS), Figures(199, 0, 100 * MS), None),  # nothing to compare with yet
        (Figures(200, 0, None), Figures(200, 0, 100 * MS), None),
        (Figures(200, 0, 201 * MS), Figures(200, 0, None), None),
        (Figures(200, 20, math.inf), Figures(200, 0, 100 * MS), "without a first token"),
        (Figures(200, 20, math.inf), Figures(200, 20, math.inf), None),
    ],
)
def test_the_verdict_follows_from_the_figures(canary: Figures, other: Figures, word: str | None) -> None:
    reason = complaint(Guard(max_error_rate=0.1, max_ttft_ratio=2.0, min_requests=200), canary, other)
    assert reason is None if word is None else reason is not None and word in reason


def test_a_bound_that_is_not_set_is_not_judged_by() -> None:
    bad = Figures(500, 500, 9_000 * MS)
    good = Figures(500, 0, 10 * MS)
    assert complaint(Guard(max_error_rate=0.1), bad, good)
    assert complaint(Guard(max_ttft_ratio=2), bad, good)
    assert complaint(Guard(), bad, good) is None


@pytest.fixture
def versions(context: PlatformContext, harbour: Tenant) -> list[AdapterVersion]:
    """Three ready versions of one adapter; `live` points at the first."""
    with context.db.platform.unit_of_work() as work:
        return [a_version(work, harbour, name="pirate", number=number, live=number == 1) for number in (1, 2, 3)]


@pytest.fixture
def key(versions: list[AdapterVersion]) -> AliasKey:
    return AliasKey(versions[0].tenant_id, versions[0].adapter_id, "live")


@pytest.fixture
def share(context: PlatformContext, versions: list[AdapterVersion], key: AliasKey, clock: FakeClock) -> Share:
    """Points `live` at versions by number and weight."""

    def set_weights(weights: dict[int, int], guard: dict[str, Any] | None = GUARD) -> None:
        targets = tuple(Target(versions[number - 1].id, number, weight) for number, weight in weights.items())
        with context.db.platform.unit_of_work() as work:
            point(work, key, Pointing(targets=targets, guard=guard), Change(actor="test", now=clock.now))

    return set_weights


@pytest.fixture
def serve(context: PlatformContext, harbour: Tenant, clock: FakeClock) -> Serve:
    """Writes usage records of a version: its answers, its failures, and what ended in other ways by outcome."""

    def write(version: AdapterVersion, *, ok: int = 0, failed: int = 0, ttft_ms: float = 100, **others: int) -> None:
        outcomes = {"ok": ok, "server_error": failed} | others
        with context.db.platform.unit_of_work() as work:
            for outcome in (outcome for outcome, n in outcomes.items() for _ in range(n)):
                work.add(
                    usage_record(
                        harbour,
                        admitted_at=clock.now,
                        outcome=outcome,
                        adapter_id=version.adapter_id,
                        version_id=version.id,
                        first_token_at=clock.now + round(ttft_ms * MS) if outcome == "ok" else None,
                    )
                )

    return write


@pytest.fixture
def guards(context: PlatformContext, clock: FakeClock) -> AliasGuards:
    return AliasGuards(db=context.db, clock=clock)


@pytest.fixture
def weights(context: PlatformContext, key: AliasKey) -> Weights:
    def read() -> dict[int, int]:
        with context.db.platform.read() as work:
            return {target.number: target.weight for target in targets_of(work, key)}

    return read


def last_change(context: PlatformContext, key: AliasKey) -> AliasChange:
    with context.db.platform.read() as work:
        return history_of(work, key)[0]


def test_a_canary_that_fails_goes_back_to_what_was_before_with_the_reason(
    context: PlatformContext,
    key: AliasKey,
    versions: list[AdapterVersion],
    share: Share,
    serve: Serve,
    guards: AliasGuards,
    weights: Weights,
) -> None:
    share({1: 90, 2: 10})
    serve(versions[0], ok=180)
    serve(versions[1], ok=15, failed=5)
    guards.judge_all()
    assert weights() == {1: 100}
    change = last_change(context, key)
    assert (change.actor, change.revision) == (SYSTEM, 3)
    assert change.reason is not None
    assert "5 of 20" in change.reason
    guards.judge_all()
    assert last_change(context, key).revision == 3


def test_a_canary_that_is_slow_goes_back(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights
) -> None:
    share({1: 90, 2: 10})
    serve(versions[0], ok=180, ttft_ms=100)
    serve(versions[1], ok=20, ttft_ms=201)
    guards.judge_all()
    assert weights() == {1: 100}


def test_a_canary_that_does_well_stays(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights
) -> None:
    share({1: 90, 2: 10})
    serve(versions[0], ok=180)
    serve(versions[1], ok=200, failed=10, ttft_ms=150)
    guards.judge_all()
    assert weights() == {1: 90, 2: 10}


def test_what_was_before_the_last_change_does_not_count(
    versions: list[AdapterVersion],
    share: Share,
    serve: Serve,
    guards: AliasGuards,
    weights: Weights,
    clock: FakeClock,
) -> None:
    serve(versions[1], failed=500)
    clock.advance(1)
    share({1: 90, 2: 10})
    serve(versions[1], ok=19)
    guards.judge_all()
    assert weights() == {1: 90, 2: 10}


def test_going_back_leads_past_every_revision_with_the_canary(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights
) -> None:
    share({1: 90, 2: 10})
    share({1: 75, 2: 25})
    serve(versions[0], ok=100)
    serve(versions[1], failed=50)
    guards.judge_all()
    assert weights() == {1: 100}


def test_the_way_back_brings_in_no_version_that_the_alias_had_left(
    context: PlatformContext,
    key: AliasKey,
    versions: list[AdapterVersion],
    share: Share,
    serve: Serve,
    guards: AliasGuards,
    weights: Weights,
    clock: FakeClock,
) -> None:
    """Two bad canaries, one after the other: the second one's way back does not lead to the first."""
    share({1: 100}, None)
    share({1: 90, 2: 10})
    share({1: 90, 3: 10})
    for _ in range(4):
        serve(versions[0], ok=30)
        serve(versions[1], failed=30)
        serve(versions[2], failed=30)
        guards.judge_all()
        assert weights() == {1: 100}
        clock.advance(5)
    assert last_change(context, key).revision == 5


@pytest.mark.parametrize("stable", [1, 2])
def test_a_rollback_after_the_guards_does_not_bring_the_canary_back(
    api: TestClient,
    harbour: Tenant,
    versions: list[AdapterVersion],
    share: Share,
    serve: Serve,
    guards: AliasGuards,
    weights: Weights,
    stable: int,
) -> None:
    """Whether the guard found a revision to go back to, or gave everything to the other target."""
    share({stable: 90, 3: 10})
    serve(versions[stable - 1], ok=30)
    serve(versions[2], failed=30)
    guards.judge_all()
    assert weights() == {stable: 100}
    answer = api.post("/v1/adapters/pirate/aliases/live/rollback", json={}, headers=harbour.auth)
    assert answer.status_code == (409 if stable == 1 else 200), "before the canary there was nothing but version 1"
    assert weights() == {1: 100}


def test_of_three_targets_a_bad_one_goes_and_then_the_next(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights, clock: FakeClock
) -> None:
    share({1: 90, 2: 10})
    share({1: 80, 2: 15, 3: 5})
    serve(versions[0], ok=30)
    serve(versions[2], failed=30)
    guards.judge_all()
    assert weights() == {1: 90, 2: 10}
    clock.advance(5)
    serve(versions[0], ok=30)
    serve(versions[1], failed=30)
    guards.judge_all()
    assert weights() == {1: 100}


def test_without_a_revision_of_present_targets_the_other_target_gets_everything(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights
) -> None:
    share({3: 90, 2: 10})
    serve(versions[2], ok=100)
    serve(versions[1], failed=50)
    guards.judge_all()
    assert weights() == {3: 100}


@pytest.mark.parametrize("bound", ["max_error_rate", "max_ttft_ratio"])
def test_a_canary_that_never_answers_goes_back(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights, bound: str
) -> None:
    share({1: 90, 2: 10}, {bound: GUARD[bound], "min_requests": 20})
    serve(versions[0], ok=900)
    serve(versions[1], deadline=300)
    guards.judge_all()
    assert weights() == {1: 100}


def test_what_says_nothing_of_a_version_neither_dilutes_its_failures_nor_counts_as_a_request(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights
) -> None:
    share({1: 90, 2: 10})
    serve(versions[0], ok=900)
    serve(versions[1], ok=10, failed=9, shed=500, client_cancelled=500, revoked=500)
    guards.judge_all()
    assert weights() == {1: 90, 2: 10}, "19 requests are too few"
    serve(versions[1], failed=1)
    guards.judge_all()
    assert weights() == {1: 100}


def test_the_percentile_is_infinite_when_more_than_5_in_100_never_got_a_first_token(
    context: PlatformContext, versions: list[AdapterVersion], serve: Serve
) -> None:
    serve(versions[0], ok=95, ttft_ms=10, deadline=5)
    serve(versions[1], ok=94, ttft_ms=10, deadline=6)
    with context.db.platform.read() as work:
        kept, lost = (figures_of(work, version.tenant_id, version.id, 0) for version in versions[:2])
    assert kept == Figures(requests=100, failed=5, ttft_p95_us=10 * MS)
    assert lost == Figures(requests=100, failed=6, ttft_p95_us=math.inf)


def test_of_equal_shares_the_newest_version_is_the_canary(
    versions: list[AdapterVersion], share: Share, serve: Serve, guards: AliasGuards, weights: Weights
) -> None:
    share({1: 50, 2: 50})
    serve(versions[1], ok=100)
    serve(versions[0], failed=50)
    guards.judge_all()
    assert weights() == {1: 50, 2: 50}
    serve(versions[1], failed=900)
    serve(versions[0], ok=900)
    guards.judge_all()
    assert weights() == {1: 100}


@pytest.mark.parametrize("guard", [None, GUARD])
def test_an_alias_without_a_guard_or_with_one_target_is_left_alone(
    versions: list[AdapterVersion],
    share: Share,
    serve: Serve,
    guards: AliasGuards,
    weights: Weights,
    guard: dict[str, Any] | None,
) -> None:
    wanted = {2: 100} if guard else {1: 90, 2: 10}
    share(wanted, guard)
    serve(versions[0], ok=500)
    serve(versions[1], failed=500)
    guards.judge_all()
    assert weights() == wanted


def test_the_95th_percentile_is_the_smallest_time_that_95_of_100_keep(
    context: PlatformContext, versions: list[AdapterVersion], serve: Serve, clock: FakeClock
) -> None:
    for milliseconds in range(1, 101):
        serve(versions[0], ok=1, ttft_ms=milliseconds)
    serve(versions[0], failed=3, client_cancelled=7)
    with context.db.platform.read() as work:
        figures = figures_of(work, versions[0].tenant_id, versions[0].id, clock.now)
        assert figures == Figures(requests=103, failed=3, ttft_p95_us=95 * MS)
        assert figures_of(work, versions[1].tenant_id, versions[1].id, 0) == Figures(0, 0, None)
