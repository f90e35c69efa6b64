"""After a disturbance is over the engine lets in what it let in before, soon, and without anybody's help."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from lorikeet_engine.errors import Overloaded
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.waiting.margin import MARGIN_FIRST, MARGIN_MOST, Margin
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

DEADLINE_S = 10.0
STEP_S = 0.065  # what the scripted profile says of a step with sixteen prompt tokens, so that predictions come true
serials = count()


def undisturbed(**settings: object) -> SteppedEngine:
    engine = stepped_engine(
        n_blocks=400, max_model_len=1200, ttft_deadline_s=DEADLINE_S, max_queued_requests=1000, **settings
    )
    engine.engine.runner.step_s = STEP_S
    return engine


def is_let_in(engine: SteppedEngine, one: Request) -> bool:
    try:
        engine.submit(one)
    except Overloaded:
        return False
    return True


def seconds_until_let_in(engine: SteppedEngine, make: Callable[[str], Request], *, every_s: float = 1.0) -> float:
    """From now on, when the same request comes again and again and nothing else does."""
    started = engine.now
    while not is_let_in(engine, make(f"again {next(serials)}")):
        assert engine.now < started + 3600.0, "refused for an hour"
        until = engine.now + every_s
        while engine.now < until:
            engine.step()
    return engine.now - started


def long_prompt(name: str, tenant: str = "other") -> Request:
    """Its first token is expected after two to four of the ten seconds."""
    return request(name, n_prompt=500, max_tokens=1, tenant=tenant)


def test_a_margin_that_one_hiccup_pushed_up_comes_down_as_time_goes_by() -> None:
    margin = Margin(DEADLINE_S)
    for _ in range(25):
        margin.observe(predicted_s=1.0, actual_s=DEADLINE_S)
    assert margin.seconds == MARGIN_MOST * DEADLINE_S
    margin.relax(600.0)
    assert margin.seconds < 0.6 * DEADLINE_S
    margin.relax(3600.0)
    assert margin.seconds == pytest.approx(MARGIN_FIRST * DEADLINE_S, abs=0.1)


def test_relaxing_takes_nothing_from_a_margin_that_is_not_wide() -> None:
    margin = Margin(DEADLINE_S)
    for _ in range(10_000):
        margin.observe(predicted_s=5.0, actual_s=5.0)
    before = margin.seconds
    margin.relax(3600.0)
    assert margin.seconds == before


def test_after_a_hiccup_in_which_many_expired_the_same_request_is_let_in_again() -> None:
    engine = undisturbed(max_num_seqs=1)
    engine.submit(request("running", max_tokens=12))
    engine.step(2)
    assert is_let_in(engine, long_prompt("before"))
    engine.loop.abort("before")
    engine.submit(*[request(f"{i}", tenant="other", n_prompt=1) for i in range(30)])
    engine.now += 2 * DEADLINE_S  # the device hangs
    engine.step()
    assert engine.counters.expired == 30
    engine.submit(request("goes on", max_tokens=900, tenant="third"))
    engine.step(2)
    assert not is_let_in(engine, long_prompt("while another runs"))
    engine.drain()
    assert seconds_until_let_in(engine, long_prompt) < 2.0, "an idle engine has nobody to be wrong about"
    engine.drain()


def test_who_waits_for_an_adapter_that_never_comes_makes_nobody_elses_request_late() -> None:
    """One decodes for a long time, another waits: few prompt tokens are computed, but not for want of speed."""
    engine = undisturbed(load_delay=10**6)
    engine.submit(request("decodes", max_tokens=600), request("waits", adapter="slow", tenant="slow"))
    for step in range(600):
        engine.step()
        if step % 50 == 0:
            assert is_let_in(engine, long_prompt(f"{step}"))
            engine.loop.abort(f"{step}")
    assert is_let_in(engine, long_prompt("last"))
    engine.step_until(lambda: "last" in engine.finished)


def test_nor_does_it_when_the_engine_stands_still_but_for_it() -> None:
    engine = undisturbed(load_delay=10**6)
    engine.submit(request("decodes", max_tokens=900), request("waits", adapter="slow", tenant="slow"))
    engine.step_until(lambda: "decodes" in engine.finished, max_steps=1000)
    engine.step(2)
    assert seconds_until_let_in(engine, long_prompt) == 0.0


def test_a_tenant_at_its_own_seat_share_makes_nobody_elses_request_late() -> None:
    engine = undisturbed(tenant_seat_share=0.125)
    engine.submit(request("a", max_tokens=900, tenant="a"), request("a waits", max_tokens=2, tenant="a"))
    for step in range(800):
        engine.step()
        if step % 100 == 99:
            assert is_let_in(engine, long_prompt(f"{step}"))
            engine.loop.abort(f"{step}")
    engine.drain()


def test_a_tenant_that_was_at_its_own_seat_share_is_let_in_again_when_it_is_not() -> None:
    """For a minute it sends more than its one seat can take; most is refused or expires."""
    engine = undisturbed(tenant_seat_share=0.125)
    for i in range(60):
        is_let_in(engine, request(f"a{i}", n_prompt=40, max_tokens=200, tenant="a"))
        engine.step(15)
    assert engine.counters.refusals.total() + engine.counters.expired > 0
    engine.drain()
    assert seconds_until_let_in(engine, lambda name: long_prompt(name, "a")) < 1200.0
    engine.drain()


def test_loads_that_were_slow_are_forgiven() -> None:
    """The store becomes slow, so that adapters are refused; nothing loads any more that could show it has recovered."""
    engine = undisturbed(arena_grains=16, host_grains=16)
    engine.engine.loader.delay = int(2 * DEADLINE_S / STEP_S)
    names = (f"adapter {i}" for i in count())

    def with_a_new_adapter(name: str) -> Request:
        return request(name, adapter=next(names), max_tokens=1)

    while is_let_in(engine, with_a_new_adapter(f"slow {next(serials)}")):
        engine.drain()
    assert engine.counters.refusals["ttft_adapter"]
    engine.engine.loader.delay = 1
    assert seconds_until_let_in(engine, with_a_new_adapter) < 120.0
    engine.drain()
    engine.step()  # the engine sees that there is nothing left to do
    assert is_let_in(engine, with_a_new_adapter("from now on"))
    engine.drain()


def test_a_burst_of_new_tenants_on_an_idle_engine_is_not_let_in_without_limit() -> None:
    """All at once, before anything was measured: what is let in is what can be computed in time."""
    engine = undisturbed()
    burst = [request(f"{i}", n_prompt=40, max_tokens=1, tenant=f"{i}") for i in range(500)]
    let_in = [one.request_id for one in burst if is_let_in(engine, one)]
    assert 20 <= len(let_in) <= DEADLINE_S / STEP_S * 16 / 40
    engine.drain()
    assert set(engine.finished) == set(let_in), "and nobody expires"
    assert max(admitted.queue_s for admitted in engine.admitted.values()) < DEADLINE_S
    assert seconds_until_let_in(engine, long_prompt) < 1200.0
    engine.drain()
