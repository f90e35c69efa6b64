"""Adapters that are brought in before anybody needs them, and those that could not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lorikeet_engine.errors import AdapterDamaged, AdapterRetired, AdapterUnavailable, EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import Residency
from lorikeet_engine.memory.ledger import MemoryState
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

RED, BAD = AdapterKey("tenant", "red"), AdapterKey("tenant", "bad")
OVERLAPS = pytest.mark.parametrize("overlaps", [False, True], ids=["alone", "overlapped"])


def n_loads(engine: SteppedEngine, digest: str) -> int:
    return [key.digest for key in engine.engine.loader.started].count(digest)


def warm(engine: SteppedEngine, key: AdapterKey) -> EngineError | None:
    """Warm it and wait for the outcome."""
    engine.loop.warm(key, engine.now)
    engine.step_until(lambda: key not in engine.loop.warming)
    [outcome] = engine.loop.take_warmed()
    assert outcome.key == key
    return outcome.error


def test_a_warm_adapter_lies_in_host_memory_and_its_first_request_starts_at_once() -> None:
    engine = stepped_engine(load_delay=5)
    assert warm(engine, RED) is None
    assert engine.residency.state(RED) is Residency.HOST
    assert engine.residency.host_ledger[MemoryState.CACHED] == engine.residency.n_bytes_of(RED)
    engine.submit(request("r", adapter="red"))
    engine.step()
    assert "r" in engine.admitted
    engine.drain()
    assert (n_loads(engine, "red"), engine.counters.longest_adapter_wait_s) == (1, 0.0)


def test_warming_what_is_on_the_device_ends_with_the_next_step() -> None:
    engine = stepped_engine()
    engine.submit(request("r", adapter="red"))
    engine.drain()
    engine.loop.warm(RED, engine.now)
    engine.step()
    assert engine.loop.take_warmed() == [(RED, None, ())]
    assert (n_loads(engine, "red"), engine.loop.has_work) == (1, False)


@pytest.mark.parametrize("first", ["request", "warm"])
def test_a_warm_adapter_and_its_requests_share_one_load(first: str) -> None:
    engine = stepped_engine(load_delay=4)
    for move in ("request", "warm") if first == "request" else ("warm", "request"):
        if move == "request":
            engine.submit(request("r", adapter="red"))
        else:
            engine.loop.warm(RED, engine.now)
            engine.loop.warm(RED, engine.now)
        engine.step()
    engine.drain()
    assert engine.loop.take_warmed() == [(RED, None, ())]
    assert (n_loads(engine, "red"), set(engine.finished)) == (1, {"r"})


def test_a_request_that_goes_away_takes_the_warm_adapters_load_not_with_it() -> None:
    engine = stepped_engine(max_loading=1, load_delay=3)
    engine.submit(request("other", adapter="green"), request("gone", adapter="red"))
    engine.loop.warm(RED, engine.now)
    engine.step()
    engine.loop.abort("gone")
    engine.drain()
    assert engine.loop.take_warmed() == [(RED, None, ())]


def test_warming_gets_its_turn_however_many_adapters_others_ask_for() -> None:
    """Host memory holds two images and one load at a time; every request brings an adapter of its own."""
    engine = stepped_engine(max_loading=1, host_grains=8, arena_grains=4, max_queued_requests=400)
    for number in range(60):
        engine.submit(request(f"r{number}", adapter=f"a{number}", tenant=f"t{number % 3}", max_tokens=2))
    engine.step(3)
    key = AdapterKey("another tenant", "red")
    engine.loop.warm(key, engine.now)
    n_before = len(engine.finished)
    engine.step_until(lambda: key not in engine.loop.warming)
    assert engine.loop.take_warmed() == [(key, None, ())]
    assert len(engine.finished) - n_before <= 8, "as many turns as there are tenants, and what was on its way"
    engine.drain()


def test_a_warm_image_that_finds_no_room_is_loaded_again_when_there_is() -> None:
    """The first image is larger than what was set aside for it, and all the others are waited for."""
    engine = stepped_engine(host_grains=8, arena_grains=4, load_delay=2, max_loading=3)
    for name in ("a", "b", "c"):
        engine.submit(request(name, adapter=name, max_tokens=20))
    engine.loop.warm(AdapterKey("ben", "red"), engine.now)
    engine.drain(max_steps=400)
    assert [(key.digest, error) for key, error, _ in engine.loop.take_warmed()] == [("red", None)]
    assert len(engine.finished) == 3


@OVERLAPS
def test_warming_a_retiring_adapter_puts_it_into_service_as_if_nothing_had_been(overlaps: bool) -> None:
    engine = stepped_engine(overlaps=overlaps)
    engine.submit(request("running", max_tokens=20, adapter="red"))
    engine.step_until(lambda: len(engine.tokens.get("running", ())) == 5)
    engine.loop.retire(RED)
    engine.step(2)
    with pytest.raises(AdapterRetired):
        engine.submit(request("refused", adapter="red"))
    engine.loop.warm(RED, engine.now)
    engine.step(2)
    assert engine.loop.take_warmed() == [(RED, None, ())]
    engine.submit(request("late", adapter="red"))
    engine.drain()
    assert set(engine.finished) == {"running", "late"}
    assert engine.residency.state(RED) is Residency.RESIDENT
    assert n_loads(engine, "red") == 1


@OVERLAPS
def test_each_outcome_has_the_tickets_of_those_who_asked_for_that_warming(overlaps: bool) -> None:
    """Warm, retire and warm within one step: the first is told of the retirement, the second of its image."""
    engine = stepped_engine(load_delay=6, overlaps=overlaps)
    engine.submit(request("base", max_tokens=40))
    engine.loop.warm(RED, engine.now, "first")
    engine.loop.warm(RED, engine.now, "beside it")
    engine.step(2)
    engine.loop.retire(RED)
    engine.loop.warm(RED, engine.now, "second")
    engine.step(2)
    [(key, error, tickets)] = engine.loop.take_warmed()
    assert (key, tickets) == (RED, ("first", "beside it"))
    assert isinstance(error, AdapterRetired)
    assert (engine.residency.state(RED), n_loads(engine, "red")) == (Residency.LOADING, 1)
    engine.loop.warm(RED, engine.now, "third")
    engine.step_until(lambda: RED not in engine.loop.warming)
    assert engine.loop.take_warmed() == [(RED, None, ("second", "third"))]
    engine.drain()


@OVERLAPS
@pytest.mark.parametrize("order", ["retire last", "warm last"])
def test_of_what_is_asked_for_during_one_step_the_last_counts(overlaps: bool, order: str) -> None:
    engine = stepped_engine(overlaps=overlaps)
    engine.submit(request("running", max_tokens=20, adapter="red"))
    engine.step(4)
    moves: list[Callable[[], None]] = [lambda: engine.loop.warm(RED, engine.now), lambda: engine.loop.retire(RED)]
    for move in moves if order == "retire last" else reversed(moves):
        move()
    engine.step(2)
    assert engine.residency.retired(RED) == (order == "retire last")
    engine.drain()


@OVERLAPS
def test_retiring_ends_the_warming_of_the_adapter(overlaps: bool) -> None:
    engine = stepped_engine(load_delay=6, overlaps=overlaps)
    engine.submit(request("base", max_tokens=20))
    engine.loop.warm(RED, engine.now)
    engine.step(2)
    engine.loop.retire(RED)
    engine.step(2)
    [(key, error, _)] = engine.loop.take_warmed()
    assert key == RED
    assert isinstance(error, AdapterRetired)
    engine.drain()
    assert engine.residency.overview() == []
    assert engine.residency.host_ledger[MemoryState.FREE] == engine.residency.host_ledger.capacity


def test_a_warming_that_fails_says_why_and_leaves_nothing() -> None:
    engine = stepped_engine()
    error = warm(engine, BAD)
    assert isinstance(error, AdapterUnavailable)
    assert error.message == "scripted damage"
    assert (engine.residency.overview(), engine.loop.has_work) == ([], False)


def test_after_a_failed_load_requests_fail_at_once_with_the_same_error_until_it_may_be_tried_again() -> None:
    engine = stepped_engine()
    engine.submit(request("first", adapter="bad"))
    engine.step_until(lambda: engine.errors)
    failed_s, message = engine.now - 1.0, engine.errors["first"].message
    assert engine.errors["first"].retry_after_s == 1.0
    with pytest.raises(AdapterUnavailable, match=message) as refused:
        engine.loop.submit([request("at once", adapter="bad")], failed_s + 0.5)
    assert refused.value.retry_after_s == 0.5
    assert refused.value.param == engine.errors["first"].param
    engine.submit(request("other", adapter="red"), request("base"), request("second", adapter="bad"))
    engine.drain()
    assert (n_loads(engine, "bad"), set(engine.finished)) == (2, {"other", "base"})
    assert engine.errors["second"].retry_after_s == 2.0


def test_warming_tries_although_the_circuit_is_open_and_success_closes_it() -> None:
    engine = stepped_engine()
    for _ in range(7):
        assert isinstance(warm(engine, BAD), AdapterUnavailable)
    assert n_loads(engine, "bad") == 7
    with pytest.raises(AdapterUnavailable) as refused:
        engine.submit(request("refused", adapter="bad"))
    assert refused.value.retry_after_s is not None
    assert 50.0 < refused.value.retry_after_s <= 60.0
    engine.engine.loader.error = None
    assert warm(engine, BAD) is None
    engine.submit(request("works", adapter="bad"))
    engine.drain()
    assert set(engine.finished) == {"works"}


def test_damaged_bytes_are_read_once_and_again_only_when_warmed() -> None:
    engine, key = stepped_engine(), AdapterKey("tenant", "bad bytes damaged")
    engine.engine.loader.error = AdapterDamaged("another digest", param="model")
    engine.submit(request("first", adapter=key.digest))
    engine.drain()
    assert (engine.errors["first"].code, engine.errors["first"].retry_after_s) == ("integrity_error", None)
    engine.now += 1e6
    with pytest.raises(AdapterDamaged):
        engine.submit(request("later", adapter=key.digest))
    assert n_loads(engine, key.digest) == 1
    assert isinstance(warm(engine, key), AdapterDamaged)
    assert n_loads(engine, key.digest) == 2


def test_heat_counts_requests_that_start_and_not_those_that_come_back() -> None:
    engine = stepped_engine(n_blocks=17, preemption="recompute")
    engine.submit(*[request(str(i), n_prompt=8, max_tokens=50, adapter="red") for i in range(4)])
    engine.step_until(lambda: len(engine.admitted) == 4 and engine.counters.preemptions["recompute"])
    heat = engine.residency.heat_of(RED, engine.now)
    engine.drain()
    assert 0.8 < heat < 4 * 0.2311
    assert 0.0 < engine.residency.heat_of(RED, engine.now) < heat
    assert engine.residency.heat_of(RED, engine.now + 3600.0) < 1e-4
    assert engine.residency.heat_of(BAD, engine.now) == 0.0
