"""A loop that leaves a step in the device's hands: what is sent meanwhile, and what may happen meanwhile."""

from __future__ import annotations

import random

import pytest

from lorikeet_engine.errors import DeviceLost
from lorikeet_engine.identity import AdapterKey
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine


def test_a_step_is_left_with_the_device_and_taken_over_by_the_next_iteration() -> None:
    engine = stepped_engine(overlaps=True)
    engine.submit(request("r", max_tokens=2))
    engine.step()
    assert engine.engine.runner.launched != []
    assert (engine.plans, engine.tokens) == ([], {})
    engine.step()
    assert (len(engine.plans), len(engine.tokens["r"])) == (1, 1)
    assert engine.engine.runner.launched != []
    engine.drain()
    assert len(engine.tokens["r"]) == 2


def test_answers_and_counters_are_those_of_a_loop_that_waits() -> None:
    def drive(engine: SteppedEngine) -> tuple[dict[str, list[int]], dict[str, int], int]:
        engine.submit(*(request(str(i), n_prompt=3 + 5 * i, max_tokens=6, adapter="ab"[i % 2]) for i in range(6)))
        engine.drain()
        counters = engine.loop.counters
        return engine.tokens, dict(counters.steps), counters.generated_tokens

    assert drive(stepped_engine(overlaps=True)) == drive(stepped_engine())


def test_the_last_step_counts_as_work_until_it_was_taken_over() -> None:
    engine = stepped_engine(overlaps=True)
    engine.submit(request("r", max_tokens=1))
    engine.step()
    engine.loop.abort("r")
    assert engine.loop.has_work
    assert engine.loop.is_computing
    engine.drain()


def test_a_request_aborted_while_its_step_is_under_way_hears_nothing_more_and_gives_all_back() -> None:
    engine = stepped_engine(overlaps=True)
    engine.submit(request("gone", max_tokens=9), request("stays", max_tokens=4))
    engine.step(3)
    heard = len(engine.tokens["gone"])
    engine.loop.abort("gone")
    engine.drain()
    assert len(engine.tokens["gone"]) == heard
    assert set(engine.finished) == {"stays"}


def test_retiring_an_adapter_meanwhile_tells_who_waits_with_the_next_iteration() -> None:
    engine = stepped_engine(overlaps=True, max_num_seqs=1)
    engine.submit(request("runs", max_tokens=3, adapter="red"))
    engine.step(3)
    engine.submit(request("waits", adapter="red"))
    engine.loop.retire(AdapterKey("tenant", "red"))
    assert engine.errors == {}
    engine.step()
    assert engine.errors["waits"].code == "adapter_retired"
    engine.drain()
    assert set(engine.finished) == {"runs"}


def test_a_step_that_fails_on_the_device_ends_its_requests_and_the_engine_goes_on() -> None:
    engine = stepped_engine(overlaps=True)
    engine.submit(request("lost"))
    engine.step()
    engine.engine.runner.fail_next = True
    engine.submit(request("later"))
    engine.drain()
    assert engine.errors["lost"].code == "engine_failure"
    assert set(engine.finished) == {"later"}
    assert engine.loop.counters.steps["failed"] == 1


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_device_that_is_lost_ends_the_engine(overlaps: bool) -> None:
    """Every later step would fail, too, while the engine says that it is ready."""
    engine = stepped_engine(overlaps=overlaps)
    engine.submit(request("r"))
    engine.engine.runner.is_lost = True
    with pytest.raises(DeviceLost):
        engine.drain()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_between_launch_and_end_everything_is_given_back(seed: int) -> None:
    rng = random.Random(seed)
    engine = stepped_engine(overlaps=True, n_blocks=14, n_host_slots=8, arena_grains=8, load_delay=rng.randint(1, 3))
    for index in range(60):
        if rng.random() < 0.5:
            prompt, answer = rng.randint(1, 14), rng.randint(1, 9)
            adapter = rng.choice(["", "a", "b", "c"])
            engine.submit(request(f"r{index}", n_prompt=prompt, max_tokens=answer, adapter=adapter))
        if rng.random() < 0.2 and engine.requests:
            engine.loop.abort(rng.choice(list(engine.requests)))
        if rng.random() < 0.05:
            engine.engine.runner.fail_next = True
        engine.step()
    engine.drain()
