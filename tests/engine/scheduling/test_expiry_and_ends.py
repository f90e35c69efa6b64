"""Every way out of the engine, from every stage: told once, and everything given back exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lorikeet_engine.errors import AdapterRetired, DeadlineExceeded
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.request import Request, Stage
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

RED = AdapterKey("tenant", "red")
Reach = Callable[[SteppedEngine], None]


def is_at(engine: SteppedEngine, stage: Stage) -> bool:
    return engine.requests["r"].stage is stage


def queued(engine: SteppedEngine) -> None:
    """There is no seat, and it is not even its adapter's turn to load."""
    engine.submit(*[request(f"other {i}", max_tokens=20) for i in range(3)])
    engine.step()
    engine.submit(the_request())
    engine.step()
    assert is_at(engine, Stage.WAITING)


def loading(engine: SteppedEngine) -> None:
    engine.submit(the_request())
    engine.step()
    assert engine.engine.loader.pending


def prefilling(engine: SteppedEngine) -> None:
    engine.submit(the_request())
    engine.step_until(lambda: "r" in engine.admitted)
    assert "r" not in engine.tokens


def decoding(engine: SteppedEngine) -> None:
    engine.submit(the_request())
    engine.step_until(lambda: len(engine.tokens.get("r", ())) == 3)


def preempted(engine: SteppedEngine) -> None:
    _displaced(engine)
    assert is_at(engine, Stage.PREEMPTED)


def swapped(engine: SteppedEngine) -> None:
    _displaced(engine)
    assert is_at(engine, Stage.SWAPPED)
    assert engine.kv.swap_ledger[MemoryState.FREE] < engine.kv.swap_ledger.capacity


def _displaced(engine: SteppedEngine) -> None:
    engine.submit(request("old", n_prompt=20, max_tokens=36))
    engine.step()
    engine.submit(the_request())
    engine.step_until(lambda: engine.requests["r"].n_preemptions)


def the_request() -> Request:
    return request("r", n_prompt=18, max_tokens=20, adapter="red")


def engine_for(reach: Reach, **limits: Any) -> SteppedEngine:
    mode = "swap" if reach is swapped else "recompute"
    settings = {"n_blocks": 16, "n_host_slots": 20, "max_num_seqs": 3, "max_num_batched_tokens": 12, "load_delay": 3}
    return stepped_engine(preemption=mode, **settings, **limits)


STAGES = [queued, loading, prefilling, decoding, preempted, swapped]
BEGUN = [prefilling, decoding, preempted, swapped]
ids = [reach.__name__ for reach in STAGES]


@pytest.mark.parametrize("reach", STAGES, ids=ids)
def test_an_aborted_request_gets_no_further_token_and_holds_nothing(reach: Reach) -> None:
    engine = engine_for(reach)
    reach(engine)
    n_tokens = len(engine.tokens.get("r", ()))
    assert engine.scheduler.abort("r")
    engine.audit()
    assert not engine.scheduler.abort("r"), "it is gone"
    assert "r" not in engine.kv.block_tables()
    engine.drain()
    assert len(engine.tokens.get("r", ())) == n_tokens
    assert "r" not in engine.errors


@pytest.mark.parametrize("reach", BEGUN, ids=[reach.__name__ for reach in BEGUN])
def test_what_has_begun_on_a_retired_adapter_ends_as_it_began(reach: Reach) -> None:
    engine = engine_for(reach)
    reach(engine)
    engine.loop.retire(RED)
    with pytest.raises(AdapterRetired):
        engine.submit(request("late", adapter="red"))
    engine.drain()
    assert len(engine.tokens["r"]) == 20
    assert_nothing_is_left_of_red(engine)


@pytest.mark.parametrize("reach", [queued, loading], ids=["queued", "loading"])
def test_what_has_not_begun_on_a_retired_adapter_is_told_so(reach: Reach) -> None:
    engine = engine_for(reach)
    reach(engine)
    engine.loop.retire(RED)
    engine.drain()
    assert isinstance(engine.errors["r"], AdapterRetired)
    assert "r" not in engine.tokens
    engine.step(4)  # a load that had begun ends by itself
    assert_nothing_is_left_of_red(engine)


@pytest.mark.parametrize("overlaps", [False, True], ids=["alone", "overlapped"])
@pytest.mark.parametrize("reach", STAGES, ids=ids)
def test_a7_force_ends_whatever_is_on_the_adapter_within_two_steps_and_nothing_else(
    reach: Reach, overlaps: bool
) -> None:
    engine = engine_for(reach, overlaps=overlaps)
    engine.submit(request("base", n_prompt=2, max_tokens=8))
    reach(engine)
    engine.loop.retire(RED, force=True)
    engine.step(2)
    assert isinstance(engine.errors["r"], AdapterRetired)
    assert not any(owner.adapter for owner in engine.kv.ledger.held_by_owner())
    engine.drain()
    assert set(engine.requests) - set(engine.finished) == {"r"}
    engine.step(4)
    assert_nothing_is_left_of_red(engine)


def assert_nothing_is_left_of_red(engine: SteppedEngine) -> None:
    assert engine.residency.overview() == []
    assert engine.residency.ledger[MemoryState.FREE] == engine.residency.ledger.capacity
    assert engine.residency.host_ledger[MemoryState.FREE] == engine.residency.host_ledger.capacity
    assert not any(owner.adapter for owner in engine.kv.ledger.held_by_owner())


@pytest.mark.parametrize("n_steps", range(0, 40, 3))
@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_a_failed_step_ends_those_it_touched_and_nobody_else(mode: str, n_steps: int) -> None:
    """At any moment of a run that swaps, forks, places adapters and waits."""
    engine = stepped_engine(n_blocks=16, n_host_slots=20, preemption=mode, max_num_seqs=5, arena_grains=8)
    prompt = request("fork").prompt * 2
    engine.submit(request("a", n_prompt=14, max_tokens=20, adapter="red"), request("b", max_tokens=20, adapter="blue"))
    engine.submit_together([request(name, prompt=prompt, max_tokens=15) for name in ("fork", "fork#1")])
    engine.submit(*[request(f"{i}", n_prompt=20, max_tokens=4) for i in range(3)])
    engine.step(n_steps)
    engine.engine.runner.fail_next = True
    engine.step()
    failed = set(engine.errors)
    assert engine.loop.counters.steps["failed"] == (1 if failed else 0)
    engine.drain()
    assert {error.code for error in engine.errors.values()} <= {"engine_failure"}
    assert set(engine.finished) == set(engine.requests) - failed


@pytest.mark.parametrize("n_steps", range(6, 20))
def test_a_step_that_fails_while_it_swaps_out_gives_back_blocks_and_slots(n_steps: int) -> None:
    """The step with the copies is one of these."""
    engine = stepped_engine(n_blocks=16, n_host_slots=20, preemption="swap")
    engine.submit(request("old", n_prompt=20, max_tokens=36), request("r", n_prompt=18, max_tokens=20))
    engine.step(n_steps)
    n_copied = engine.counters.swap_bytes["out"]
    engine.engine.runner.fail_next = True
    engine.step()
    if engine.counters.swap_bytes["out"] > n_copied:
        assert set(engine.errors) == {"old", "r"}
        engine.assert_all_is_released()
    engine.drain()


def test_a_step_that_fails_while_it_swaps_in_gives_back_blocks_and_slots() -> None:
    engine = stepped_engine(n_blocks=16, n_host_slots=20, preemption="swap")
    engine.submit(request("old", n_prompt=20, max_tokens=36))
    engine.step()
    engine.submit(request("r", n_prompt=18, max_tokens=20))
    engine.step_until(lambda: is_at(engine, Stage.SWAPPED))
    engine.step_until(lambda: "old" in engine.finished)
    engine.engine.runner.fail_next = True
    engine.step()
    assert engine.counters.swap_bytes["in"] > 0
    assert set(engine.errors) == {"r"}
    engine.assert_all_is_released()


def test_nobody_is_admitted_without_a_first_chunk_in_the_same_step() -> None:
    """Three tokens of the budget are left for the second, and its prompt's first chunk is a block."""
    engine = stepped_engine(max_num_batched_tokens=11)
    engine.submit(request("first", n_prompt=8), request("second", n_prompt=9), request("short", n_prompt=2))
    engine.step()
    assert set(engine.admitted) == {"first"}
    engine.step()
    assert set(engine.admitted) == {"first", "second"}
    engine.drain()


def test_a_row_without_finite_logits_fails_alone() -> None:
    engine = stepped_engine()
    engine.engine.runner.not_finite = {"bad"}
    engine.submit(request("bad", adapter="red"), request("good", adapter="red"))
    engine.drain()
    assert set(engine.finished) == {"good"}
    assert engine.errors["bad"].code == "engine_failure"


def test_a_row_whose_logits_turn_bad_while_it_decodes_keeps_what_it_was_told() -> None:
    engine = stepped_engine()
    engine.submit(request("bad", max_tokens=9), request("good", max_tokens=9))
    engine.step_until(lambda: len(engine.tokens.get("bad", ())) == 3)
    engine.engine.runner.not_finite = {"bad"}
    engine.drain()
    assert [len(engine.tokens[name]) for name in ("bad", "good")] == [3, 9]
    assert set(engine.errors) == {"bad"}


def test_who_cannot_meet_the_deadline_any_more_is_dropped_from_the_queue() -> None:
    engine = stepped_engine(max_num_seqs=1, ttft_deadline_s=10.0)
    engine.submit(request("long", max_tokens=30))
    engine.step()
    engine.submit(request("late", adapter="red"), request("bye"))
    engine.loop.abort("bye")
    engine.step_until(lambda: engine.errors)
    assert isinstance(engine.errors["late"], DeadlineExceeded)
    assert 9 <= engine.now - engine.requests["late"].arrival_s - 1 <= 10
    assert engine.counters.expired == 1
    engine.drain()
    assert len(engine.tokens["long"]) == 30
    assert [(pins, waiting) for *_, pins, waiting in engine.residency.overview()] == [(0, 0)]


def test_the_time_to_compute_the_prompt_is_part_of_the_deadline() -> None:
    """The longer one leaves the queue earlier, by the time that its further tokens would take."""
    expired_at = []
    for n_prompt in (4, 48):
        engine = stepped_engine(n_blocks=100, max_num_seqs=1, max_model_len=400, ttft_deadline_s=2.0)
        engine.engine.runner.step_s = 0.02
        engine.submit(request("long", max_tokens=300))
        engine.step(5)
        engine.submit(request("late", n_prompt=n_prompt))
        submitted_at = engine.now
        engine.step_until(lambda engine=engine: engine.errors)  # type: ignore[misc]
        expired_at.append(engine.now - submitted_at)
    short, long = expired_at
    assert 1.8 < short < 2.1
    assert short - long > 0.1


@pytest.mark.parametrize("reach", BEGUN, ids=[reach.__name__ for reach in BEGUN])
def test_what_has_begun_never_expires(reach: Reach) -> None:
    engine = engine_for(reach, ttft_deadline_s=100.0)
    reach(engine)
    engine.now += 1000.0
    engine.drain()
    assert "r" in engine.finished
    assert engine.counters.expired == 0


def test_the_many_ways_out_of_one_step_are_told_in_one_answer() -> None:
    engine = stepped_engine(max_num_seqs=1, ttft_deadline_s=10.0, load_delay=9)
    engine.submit(request("running", max_tokens=20))
    engine.submit(request("late"), request("lost", adapter="bad"), request("told", adapter="red"))
    engine.step(8)
    engine.loop.retire(RED)
    engine.step(4)
    assert {name: error.code for name, error in engine.errors.items()} == {
        "late": "deadline_exceeded",
        "lost": "adapter_unavailable",
        "told": "adapter_retired",
    }
    engine.drain()
