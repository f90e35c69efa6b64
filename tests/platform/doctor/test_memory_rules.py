"""Preemptions, closed seats and idle pools: when a rule speaks, when it does not, and what it says to set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lorikeet_engine.cost_vector import CostVector
from lorikeet_platform.doctor.catalogue import examine
from lorikeet_platform.doctor.evidence.room import larger_pool
from lorikeet_platform.doctor.examined import Surroundings
from lorikeet_platform.doctor.rules.memory import preemption, seats_lowered, too_few_seats
from tests.support.seen_engine import EMPTY_POOL, preempted, prefix, seen, times, work

HELD = replace(EMPTY_POOL, used=300, free=700)


def requests(n: int, *, prompt: int = 24, output: int = 24) -> dict[str, Any]:
    """So many requests of one length were begun and ended: at 48 tokens the pool of 64 blocks of 4 holds 5.3."""
    return {
        "histograms": [times("queue", [0.01] * n), times("e2e", [1.0] * n)],
        "generated_tokens_total": n * output,
        "prefix": prefix(n * prompt),
    }


def test_preemptions_are_found_with_the_seats_that_would_do() -> None:
    finding = preemption(seen(requests(20) | {"preemptions": preempted(recompute=5, tokens=90)}))
    assert finding is not None
    assert finding.setting == "LORIKEET_ENGINE__MAX_NUM_SEQS=3"  # 60 % of 64 / 12 blocks
    evidence = {item.label: item.value for item in finding.evidence}
    assert evidence["preemptions"] == "5 (0 swapped)"
    assert evidence["such requests that the pool holds"] == "5.3"
    assert evidence["tokens computed again"] == "90"


@pytest.mark.parametrize(("n_preempted", "n_ended", "is_found"), [(2, 10, False), (3, 60, True), (3, 61, False)])
def test_few_preemptions_among_many_requests_are_none(n_preempted: int, n_ended: int, is_found: bool) -> None:
    finding = preemption(seen(requests(n_ended) | {"preemptions": preempted(swap=n_preempted)}))
    assert (finding is not None) is is_found


def test_waiting_for_a_block_is_no_preemption() -> None:
    assert preemption(seen(requests(20) | {"preemptions": preempted(wait=50)})) is None


@pytest.mark.parametrize(("wasted", "severity"), [(19.0, "warning"), (20.0, "critical")])
def test_what_was_computed_again_is_the_cost_of_preemptions(wasted: float, severity: str) -> None:
    after = requests(20) | {
        "preemptions": preempted(recompute=9),
        "work_by_kind": {"mixed": work(flops=100.0)},
        "costs": CostVector(wasted_flops=wasted),
    }
    finding = preemption(seen(after))
    assert finding is not None
    assert (finding.severity, finding.cost.share) == (severity, wasted / 100)


def test_where_few_run_already_the_remedy_for_preemptions_is_a_larger_pool() -> None:
    finding = preemption(seen(requests(20) | {"preemptions": preempted(recompute=9)}, max_num_seqs=2))
    assert finding is not None
    assert finding.setting is not None
    name, _, value = finding.setting.partition("=")
    assert (name, int(value) % (1 << 20)) == ("LORIKEET_ENGINE__KV_CACHE_BYTES", 0)


def test_a_pool_is_not_asked_to_grow_beyond_the_memory_that_is_left() -> None:
    after, none_left = requests(20) | {"preemptions": preempted(recompute=9)}, [("KV pool", 4096), ("left", 100)]
    finding = preemption(seen(after, max_num_seqs=2, memory=none_left))
    assert finding is not None
    assert (finding.setting, "no memory is left" in finding.remedy) == (None, True)
    of_a_gpu = seen(after, max_num_seqs=2, memory=none_left, knobs={"device": "cuda"})
    assert larger_pool(of_a_gpu, "kv_cache_bytes", 1 << 30) is None
    assert larger_pool(of_a_gpu, "adapter_pool_bytes", 1 << 30) == f"LORIKEET_ENGINE__ADAPTER_POOL_BYTES={1 << 30}"
    some_left = seen(after, memory=[("left", 5 << 20)])
    assert larger_pool(some_left, "kv_cache_bytes", 1 << 30) == f"LORIKEET_ENGINE__KV_CACHE_BYTES={5 << 20}"


def test_lengths_come_from_what_runs_while_nothing_has_ended() -> None:
    finding = preemption(seen({"preemptions": preempted(recompute=3)}))
    assert finding is not None
    assert finding.setting is None


@pytest.mark.parametrize(("seats", "waiting", "is_found"), [(6, 3, True), (7, 3, False), (6, 0, False)])
def test_closed_seats_are_found_while_requests_wait(seats: int, waiting: int, is_found: bool) -> None:
    finding = seats_lowered(seen({"seats": seats, "waiting": waiting}, before={"seats": 5}))
    assert (finding is not None) is is_found


def test_closed_seats_are_not_told_beside_the_preemptions_that_closed_them() -> None:
    both = seen(requests(20) | {"preemptions": preempted(recompute=5), "seats": 4, "waiting": 9}, before={"seats": 4})
    assert seats_lowered(both) is not None
    found = examine(Surroundings(), both)
    assert {name for name, finding in found.items() if finding} == {"preemption"}


CROWDED: dict[str, Any] = {"running": 8, "waiting": 5, "kv": HELD}


def full_seats(**changes: Any) -> dict[str, Any]:
    return requests(50, prompt=4, output=4) | CROWDED | changes


def test_an_idle_pool_is_found_while_requests_wait_for_a_seat() -> None:
    finding = too_few_seats(seen(full_seats(), between=[full_seats()] * 3, before=CROWDED))
    assert finding is not None
    assert finding.setting == "LORIKEET_ENGINE__MAX_NUM_SEQS=20"  # 65 % of 64 / 2 blocks
    assert finding.cost.share == pytest.approx(0.7)


@pytest.mark.parametrize(
    "changes",
    [
        {"waiting": 0},
        {"running": 7},
        {"kv": replace(EMPTY_POOL, used=501, free=499)},
        {"seats": 7, "running": 7},  # that is another rule's
    ],
)
def test_seats_are_enough_where_nobody_waits_for_one_or_the_pool_is_full(changes: dict[str, Any]) -> None:
    moment = full_seats(**changes)
    assert too_few_seats(seen(moment, between=[moment] * 3, before=moment)) is None


def test_seats_are_not_raised_beyond_what_a_step_can_decode() -> None:
    crowded = full_seats()
    tight = seen(crowded, between=[crowded] * 3, before=CROWDED, knobs={"max_num_batched_tokens": 12})
    assert too_few_seats(tight) is None


def test_a_quiet_engine_has_no_trouble_with_memory() -> None:
    quiet = seen(between=[{}] * 3)
    assert [rule(quiet) for rule in (preemption, seats_lowered, too_few_seats)] == [None] * 3
