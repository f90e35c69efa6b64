"""What is remembered of adapters that could not be loaded, and how much they are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.errors import AdapterDamaged, AdapterUnavailable
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.circuits import (
    FIRST_PAUSE_S,
    KEPT_CIRCUITS,
    LONGEST_PAUSE_S,
    QUIET_S,
    AdapterCircuits,
)
from lorikeet_engine.memory.adapters.entry import HEAT_HALF_LIFE_S, Heat

RED, GREEN = AdapterKey("tenant", "red"), AdapterKey("tenant", "green")
ERROR = AdapterUnavailable("the store is away", param="model")


def test_a_failure_is_told_at_once_with_the_time_that_is_left_until_the_next_try() -> None:
    circuits = AdapterCircuits()
    assert circuits.refusal(RED, 0.0) is None
    told = circuits.fail(RED, ERROR, 10.0)
    assert (type(told), told.message, told.param, told.retry_after_s) == (
        AdapterUnavailable,
        ERROR.message,
        "model",
        1.0,
    )
    refusal = circuits.refusal(RED, 10.75)
    assert refusal is not None
    assert (refusal.message, refusal.retry_after_s) == (ERROR.message, 0.25)
    assert circuits.refusal(RED, 11.0) is None
    assert circuits.refusal(GREEN, 10.0) is None


def test_each_failure_doubles_the_pause_up_to_a_minute_and_a_load_that_works_forgets_them() -> None:
    circuits, now, pauses = AdapterCircuits(), 0.0, list[float]()
    for _ in range(8):
        told = circuits.fail(RED, ERROR, now)
        assert told.retry_after_s is not None
        pauses.append(told.retry_after_s)
        now += pauses[-1] + QUIET_S - 1.0
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    circuits.close(RED)
    assert circuits.refusal(RED, now) is None
    assert circuits.fail(RED, ERROR, now).retry_after_s == 1


def test_a_failure_after_some_quiet_minutes_starts_at_the_first_pause_again() -> None:
    circuits = AdapterCircuits()
    for now in (0.0, 1.0, 3.0):
        told = circuits.fail(RED, ERROR, now)
    assert told.retry_after_s == 4
    assert circuits.fail(RED, ERROR, 7.0 + QUIET_S).retry_after_s == 1
    assert circuits.fail(RED, ERROR, 9.0 + QUIET_S).retry_after_s == 2


def test_damaged_bytes_are_not_tried_again_however_long_it_takes() -> None:
    circuits = AdapterCircuits()
    told = circuits.fail(RED, AdapterDamaged("another digest"), 0.0)
    assert (told.code, told.retry_after_s) == ("integrity_error", None)
    refusal = circuits.refusal(RED, 1e9)
    assert isinstance(refusal, AdapterDamaged)
    circuits.close(RED)
    assert circuits.refusal(RED, 1e9) is None


def test_as_many_failures_are_remembered_as_have_room_and_the_oldest_goes_first() -> None:
    circuits = AdapterCircuits()
    for number in range(KEPT_CIRCUITS):
        circuits.fail(AdapterKey("tenant", str(number)), ERROR, 0.0)
    circuits.fail(AdapterKey("tenant", "0"), ERROR, 0.0)
    circuits.fail(RED, ERROR, 0.0)
    assert len(circuits) == KEPT_CIRCUITS
    assert circuits.refusal(AdapterKey("tenant", "1"), 0.0) is None
    assert circuits.refusal(AdapterKey("tenant", "0"), 0.0) is not None


@given(st.lists(st.tuples(st.sampled_from(["fail", "close", "wait"]), st.floats(0.0, 100.0)), max_size=30))
def test_a_circuit_is_open_exactly_during_the_pause_after_a_failure(moves: list[tuple[str, float]]) -> None:
    circuits, now, pause, open_until = AdapterCircuits(), 0.0, 0.0, 0.0
    for move, seconds in moves:
        if move == "fail":
            pause = min(2 * pause, LONGEST_PAUSE_S) if pause else FIRST_PAUSE_S
            open_until = now + pause
            circuits.fail(RED, ERROR, now)
        elif move == "close":
            circuits.close(RED)
            pause = open_until = 0.0
        now += seconds
        refusal = circuits.refusal(RED, now)
        assert (refusal is not None) == (now < open_until)
        if refusal is not None and refusal.retry_after_s is not None:
            assert refusal.retry_after_s == pytest.approx(open_until - now)


@pytest.mark.parametrize("per_minute", [0.5, 6.0, 120.0])
def test_heat_settles_at_the_requests_a_minute_and_halves_when_they_stop(per_minute: float) -> None:
    heat, now = Heat(), 0.0
    while now < 12 * HEAT_HALF_LIFE_S:
        heat.add(now)
        now += 60.0 / per_minute
    assert heat.per_minute(now - 30.0 / per_minute) == pytest.approx(per_minute, rel=0.03)
    then = heat.per_minute(now)
    assert heat.per_minute(now + HEAT_HALF_LIFE_S) == pytest.approx(then / 2)
    assert Heat().per_minute(5.0) == 0.0
