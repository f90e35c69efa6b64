"""Overload, wrong predictions, failing steps, and what is not put on record; and what is wrong around the engine."""

from __future__ import annotations

import pytest

from lorikeet_platform.doctor.examined import Surroundings
from lorikeet_platform.doctor.rules.demand import failed_steps, overload, step_time_model, unsettled
from lorikeet_platform.doctor.rules.installation import books_disagree, engine_away, rates_degraded
from tests.support.seen_engine import seen, times


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        ("engine_queue", "LORIKEET_ENGINE__MAX_QUEUED_REQUESTS=200"),
        ("engine_tokens", "LORIKEET_ENGINE__MAX_QUEUED_TOKENS=20000"),
        ("ttft_engine", "LORIKEET_ENGINE__TTFT_DEADLINE=20"),
        ("ttft_adapter", f"LORIKEET_ENGINE__HOST_ADAPTER_CACHE_BYTES={1 << 20}"),
        ("ttft_kv", f"LORIKEET_ENGINE__KV_CACHE_BYTES={1 << 20}"),
    ],
)
def test_overload_is_found_with_what_its_main_reason_asks_for(reason: str, setting: str) -> None:
    begun = times("queue", [0.1] * 40)
    finding = overload(seen({"refusals": {reason: 10, "tenant_queue": 50}, "expired": 3, "histograms": [begun]}))
    assert finding is not None
    assert (finding.severity, finding.setting) == ("critical", setting)
    assert finding.cost.share == pytest.approx(13 / 53)


@pytest.mark.parametrize(
    ("refusals", "expired", "begun", "is_found"),
    [
        ({"ttft_engine": 5}, 0, 495, True),
        ({"ttft_engine": 5}, 0, 496, False),
        ({"ttft_engine": 4}, 0, 10, False),
        ({}, 5, 10, True),
        ({"tenant_queue": 500, "tenant_concurrency": 9, "ttft_tenant": 7}, 0, 10, False),
    ],
)
def test_overload_is_what_a_hundredth_of_all_requests_lose_and_no_tenants_own_limit(
    refusals: dict[str, int], expired: int, begun: int, is_found: bool
) -> None:
    after = {"refusals": refusals, "expired": expired, "histograms": [times("queue", [0.1] * begun)]}
    assert (overload(seen(after)) is not None) is is_found


@pytest.mark.parametrize(
    ("steps", "error", "late_s", "is_found"),
    [(200, 0.5, 1.0, True), (199, 0.9, 9.0, False), (500, 0.49, 9.0, False), (500, 0.9, 0.9, False)],
)
def test_wrong_step_times_are_found_where_first_tokens_are_mistaken_too(
    steps: int, error: float, late_s: float, is_found: bool
) -> None:
    after = {
        "steps_total": steps,
        "step_time_error": error,
        "ttft_error_s": late_s,
        "histograms": [times("ttft", [2.0] * 9)],
    }
    assert (step_time_model(seen(after)) is not None) is is_found


def test_a_failed_step_is_found() -> None:
    assert failed_steps(seen({"steps_by_kind": {"failed": 1}, "steps_total": 10})) is not None
    assert failed_steps(seen({"steps_by_kind": {"failed": 1}}, before={"steps_by_kind": {"failed": 1}})) is None


@pytest.mark.parametrize(("before", "after", "is_found"), [(100, 200, True), (100, 199, False), (300, 300, False)])
def test_settlements_that_pile_up_are_found(before: int, after: int, is_found: bool) -> None:
    assert (unsettled(seen({"unsettled": after}, before={"unsettled": before})) is not None) is is_found


@pytest.mark.parametrize(
    ("away_s", "has_answered", "is_found"),
    [(None, True, False), (9.9, True, False), (10.0, True, True), (239.0, False, False), (240.0, False, True)],
)
def test_an_engine_that_is_away_is_found_and_one_that_starts_is_given_time(
    away_s: float | None, has_answered: bool, is_found: bool
) -> None:
    assert (engine_away(Surroundings(away_s=away_s, has_answered=has_answered)) is not None) is is_found


@pytest.mark.parametrize(("mismatches", "is_found"), [(None, False), (0, False), (1, True)])
def test_books_that_disagree_are_found(mismatches: int | None, is_found: bool) -> None:
    assert (books_disagree(Surroundings(books_mismatches=mismatches)) is not None) is is_found


def test_rates_counted_alone_are_found() -> None:
    assert rates_degraded(Surroundings(rates_degraded=True)) is not None
    assert rates_degraded(Surroundings()) is None
