"""The loop around the scheduler: loads and images on their way, what is told between steps, what is counted."""

from __future__ import annotations

import pytest

from lorikeet_engine.cost import StepShape, step_work
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.ledger import MemoryState
from tests.support.scripted_engine_parts import COST, request, scripted_engine
from tests.support.stepped_engine import SteppedEngine, stepped_engine

RED = AdapterKey("tenant", "red")


def images(engine: SteppedEngine) -> set[str]:
    """Digests whose bytes the loop holds."""
    return {key.digest for key in engine.loop._images}


def test_an_adapter_that_cannot_be_loaded_fails_its_requests_only_and_may_be_tried_again() -> None:
    engine = stepped_engine()
    engine.submit(request("good", adapter="red"), request("lost", adapter="bad"), request("lost too", adapter="bad"))
    engine.drain()
    assert set(engine.finished) == {"good"}
    assert {name: error.code for name, error in engine.errors.items()} == {
        "lost": "adapter_unavailable",
        "lost too": "adapter_unavailable",
    }
    engine.submit(request("again", adapter="bad"))
    engine.drain()
    assert [key.digest for key in engine.engine.loader.started].count("bad") == 2


@pytest.mark.parametrize(("arena_grains", "host_grains"), [(8, 64), (64, 8)], ids=["arena", "host cache"])
def test_an_adapter_larger_than_a_tier_fails_its_request_only(arena_grains: int, host_grains: int) -> None:
    engine = stepped_engine(arena_grains=arena_grains, host_grains=host_grains, adapter_grains=9)
    engine.submit(request("huge", adapter="red"), request("base"))
    engine.drain()
    assert set(engine.finished) == {"base"}
    assert "the arena holds" in engine.errors["huge"].message
    assert images(engine) == set()
    assert engine.residency.overview() == []


def test_images_are_kept_while_they_fit_and_their_bytes_freed_with_their_ledger() -> None:
    engine = stepped_engine(host_grains=8)
    for digest in "abcd":
        engine.submit(request(digest, adapter=digest))
        engine.drain()
        held = engine.residency.host_ledger.capacity - engine.residency.host_ledger[MemoryState.FREE]
        assert len(images(engine)) * 4 * 32 == held
    assert images(engine) == {"c", "d"}


def test_an_image_that_nobody_waits_for_any_more_is_kept_for_the_next_who_asks() -> None:
    engine = stepped_engine(load_delay=2)
    engine.submit(request("gone", adapter="red"))
    engine.step()
    engine.loop.abort("gone")
    engine.step(4)
    engine.submit(request("next", adapter="red"))
    engine.drain()
    assert len(engine.engine.loader.started) == 1


def test_retiring_what_nobody_uses_frees_image_and_place_with_the_next_step() -> None:
    engine = stepped_engine()
    engine.submit(request("r", adapter="red"))
    engine.drain()
    assert images(engine) == {"red"}
    engine.loop.retire(RED)
    engine.step()
    assert images(engine) == set()
    engine.loop.retire(RED)
    engine.loop.retire(AdapterKey("tenant", "never seen"))


def test_who_waited_for_a_retired_adapter_is_told_with_the_next_step() -> None:
    engine = stepped_engine(load_delay=9)
    engine.submit(request("r", adapter="red"))
    engine.step()
    engine.loop.retire(RED)
    assert engine.loop.has_work, "somebody is still to be told"
    engine.step()
    assert engine.errors["r"].code == "adapter_retired"
    assert not engine.loop.has_work


def test_placements_are_carried_out_before_the_rows_that_read_them_and_moves_before_them() -> None:
    """The scripted runner checks that each row's extent holds its adapter; here extents have to move together."""
    engine = stepped_engine(arena_grains=10, host_grains=64)
    loader = engine.engine.loader
    for digest, n_grains in (("a", 3), ("b", 4), ("c", 3)):
        loader.n_grains = n_grains
        tokens = 40 if digest == "b" else 3
        engine.submit(request(digest, n_prompt=3, max_tokens=tokens, adapter=digest))
        engine.step(2)
    engine.step(8)
    loader.n_grains = 6
    engine.submit(request("d", adapter="d"))
    engine.step_until(lambda: "d" in engine.finished)
    assert any(placement.moves for plan in engine.plans for placement in plan.placements)
    assert "b" not in engine.finished
    engine.drain()


def test_every_step_is_counted_by_kind_with_its_time_and_its_work() -> None:
    engine = stepped_engine(n_blocks=60)
    engine.submit(request("a", n_prompt=20, max_tokens=3), request("b", n_prompt=20, max_tokens=3))
    engine.drain()
    counters = engine.loop.counters
    assert dict(counters.steps) == {"prefill": 2, "decode": 2, "mixed": 1, "copy": 0, "failed": 0}
    assert counters.step_seconds["prefill"] == 2.0
    assert (counters.prompt_tokens, counters.generated_tokens) == (40, 6)
    first, second = StepShape(), StepShape()
    first.add_prefill(16, 0, samples=False)
    second.add_prefill(4, 16, samples=True)
    second.add_prefill(12, 0, samples=False)
    assert counters.work["prefill"] == step_work(COST, first) + step_work(COST, second)
    assert counters.work["decode"].flops > 0
    assert counters.work["copy"].flops == 0


def test_a_failed_step_is_counted_and_the_next_request_is_served() -> None:
    engine = stepped_engine()
    engine.submit(request("a", adapter="red"))
    engine.step(2)
    engine.engine.runner.fail_next = True
    engine.step()
    assert engine.errors["a"].code == "engine_failure"
    assert engine.loop.counters.steps["failed"] == 1
    engine.submit(request("b", adapter="red"))
    engine.drain()
    assert len(engine.tokens["b"]) == 4


def test_tokens_a_second_are_those_of_the_last_ten() -> None:
    engine = stepped_engine()
    engine.submit(request("r", n_prompt=3, max_tokens=20))
    engine.drain()
    assert engine.loop.tokens_per_second(engine.now) == pytest.approx(1.0, abs=0.11)
    assert engine.loop.tokens_per_second(engine.now + 100) == 0.0


def test_a_request_is_told_when_it_began_before_its_first_token_and_only_once() -> None:
    engine = scripted_engine(max_num_seqs=1)
    for one in (request("a", max_tokens=2), request("b", max_tokens=1)):
        engine.loop.submit([one], 0.0)
    told = [[type(event).__name__ for event in engine.loop.step(float(now))] for now in range(3)]
    assert told == [["Admitted", "TokenOutput"], ["TokenOutput"], ["Admitted", "TokenOutput"]]


def test_time_in_the_queue_is_from_submit_to_start() -> None:
    engine = stepped_engine(max_num_seqs=1)
    engine.submit(request("a", max_tokens=5), request("b"))
    engine.drain()
    assert (engine.admitted["a"].queue_s, engine.admitted["b"].queue_s) == (0.0, 5.0)


def test_whether_the_next_step_computes_is_known() -> None:
    engine = stepped_engine(load_delay=3)
    engine.submit(request("r", adapter="red"))
    engine.step()
    assert engine.loop.has_work
    assert not engine.loop.is_computing
    engine.step_until(lambda: "r" in engine.tokens)
    assert engine.loop.is_computing
    engine.drain()
