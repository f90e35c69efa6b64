"""What may join the queue: bounds, and a prediction of the first token, with a reason and a time to come back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lorikeet_engine.errors import REFUSAL_REASONS, InvalidRequest, Overloaded, TenantLimited
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.waiting.admission import CALM
from lorikeet_engine.scheduling.waiting.margin import MARGIN_LEAST, MARGIN_MOST, Margin
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

STEP_S = 0.065  # what the scripted profile says of a step with sixteen prompt tokens, so that predictions come true
EARLIEST_S, LATEST_S = 0.8, 72.0  # 1 s and 60 s, a fifth up or down


def overloadable(*, deadline_s: float = 1.0, **settings: object) -> SteppedEngine:
    engine = stepped_engine(n_blocks=200, ttft_deadline_s=deadline_s, max_queued_requests=1000, **settings)
    engine.engine.runner.step_s = STEP_S
    return engine


def refusal(engine: SteppedEngine, requests: Sequence[Request]) -> Overloaded | None:
    try:
        engine.submit_together(requests)
    except Overloaded as overloaded:
        error = overloaded
    else:
        return None
    assert error.reason in REFUSAL_REASONS
    assert error.retry_after_s is not None
    assert EARLIEST_S <= error.retry_after_s <= LATEST_S
    return error


def flood(engine: SteppedEngine, tenant: str, n: int = 100, *, n_prompt: int = 16, name: str = "") -> Overloaded:
    """Send until the first refusal."""
    for i in range(n):
        one = request(f"{name or tenant} {i} at {engine.now:.3f}", n_prompt=n_prompt, max_tokens=2, tenant=tenant)
        error = refusal(engine, [one])
        if error is not None:
            return error
    raise AssertionError(f"{n} requests were all let in")


@pytest.mark.parametrize(
    ("limits", "tenants", "reason", "error"),
    [
        ({"max_queued_requests": 10, "tenant_queue_share": 0.4}, ["a"] * 5, "tenant_queue", TenantLimited),
        ({"max_queued_requests": 4}, ["a", "b", "c", "d", "e"], "engine_queue", Overloaded),
        ({"max_queued_tokens": 40}, ["a", "b", "c", "d", "e"], "engine_tokens", Overloaded),
        ({"max_queued_tokens": 80, "tenant_queue_share": 0.5}, ["a"] * 5, "tenant_queue", TenantLimited),
    ],
)
def test_a_full_queue_refuses_the_fifth_and_says_whose_limit_it_is(
    limits: dict[str, float], tenants: list[str], reason: str, error: type[Overloaded]
) -> None:
    engine = stepped_engine(**limits)
    answers = [refusal(engine, [request(f"{i}", n_prompt=10, tenant=t)]) for i, t in enumerate(tenants)]
    assert answers[:4] == [None] * 4
    assert answers[4] is not None
    assert type(answers[4]) is error
    assert (answers[4].reason, engine.counters.refusals) == (reason, {reason: 1})
    engine.drain()
    assert len(engine.finished) == 4


def test_a_bound_that_one_request_exceeds_alone_still_lets_it_in_when_nobody_waits() -> None:
    engine = stepped_engine(max_queued_tokens=10, tenant_queue_share=0.5)
    engine.submit(request("r", n_prompt=30))
    engine.drain()


@pytest.mark.parametrize(
    ("limits", "tenant", "reason"),
    [
        ({"max_queued_requests": 4}, "another", "engine_queue"),
        ({"max_queued_requests": 10, "tenant_queue_share": 0.4}, "tenant", "tenant_queue"),
    ],
)
def test_several_answers_are_let_in_together_or_not_at_all(limits: dict[str, float], tenant: str, reason: str) -> None:
    engine = stepped_engine(**limits)
    engine.submit(request("a", tenant=tenant), request("b", tenant=tenant))
    names = ("n", "n#1", "n#2")
    error = refusal(engine, [request(name, prompt=(1, 2, 3)) for name in names])
    assert error is not None
    assert error.reason == reason
    assert engine.scheduler.n_waiting == 2
    assert refusal(engine, [request(name, prompt=(1, 2, 3)) for name in names[:2]]) is None
    engine.drain()
    assert set(engine.finished) == {"a", "b", "n", "n#1"}


def test_more_answers_than_the_queue_ever_holds_are_not_refused_for_now_but_as_a_mistake() -> None:
    engine = stepped_engine(max_queued_requests=3, tenant_queue_share=0.5)
    names = ("n", "n#1", "n#2", "n#3")
    with pytest.raises(InvalidRequest, match="3 answers, not 4") as told:
        engine.submit_together([request(name, prompt=(1, 2, 3)) for name in names])
    assert told.value.param == "n"
    assert engine.counters.refusals.total() == 0
    engine.submit_together([request(name, prompt=(1, 2, 3)) for name in names[:3]])
    engine.drain()


def test_what_was_refused_left_no_trace() -> None:
    engine = stepped_engine(max_queued_requests=1)
    engine.submit(request("a", max_tokens=1))
    assert refusal(engine, [request("b", adapter="red", tenant="other")]) is not None
    assert engine.residency.overview() == []
    assert [load.tenant for load in engine.scheduler.tenants()] == ["tenant"]
    engine.drain()
    engine.submit(request("b", adapter="red", tenant="other"))
    engine.drain()


def test_a_flood_is_told_that_it_is_its_own_and_somebody_else_is_let_in() -> None:
    engine = overloadable()
    flood(engine, "quiet", n=1000, n_prompt=16, name="warm")
    engine.drain()
    error = flood(engine, "noisy")
    assert type(error) is TenantLimited
    assert error.reason == "ttft_tenant"
    assert "your own limit" in error.message
    assert refusal(engine, [request("quiet", n_prompt=16, tenant="quiet")]) is None
    engine.step_until(lambda: "quiet" in engine.tokens)
    assert engine.admitted["quiet"].queue_s < 1.0
    engine.drain()


def test_many_modest_tenants_together_are_told_that_the_engine_is_full() -> None:
    engine = overloadable()
    errors = []
    for step in range(150):
        for i in range(2):
            name = f"{step}.{i}"
            errors.append(refusal(engine, [request(name, n_prompt=16, max_tokens=2, tenant=f"tenant {name}")]))
        engine.step()
    refused = [error for error in errors if error]
    assert refused
    assert errors[0] is None
    assert {type(error) for error in refused} == {Overloaded}
    assert {error.reason for error in refused} == {"ttft_engine"}
    assert "the engine is full" in refused[0].message
    engine.drain()


def test_those_let_in_get_their_first_token_in_time() -> None:
    """Three tenants send five times what can be served, for twenty seconds."""
    engine = overloadable()
    for step in range(300):
        for tenant in "abc":
            refusal(engine, [request(f"{tenant} {step}", n_prompt=24, max_tokens=2, tenant=tenant)])
        engine.step()
    engine.drain()
    n_in_time = sum(admitted.queue_s < 1.0 for admitted in engine.admitted.values())
    n_let_in = len(engine.requests)
    assert n_let_in > 150
    assert n_in_time >= 0.97 * n_let_in
    assert engine.counters.expired == len(engine.errors) <= 0.03 * n_let_in
    assert engine.counters.refusals.total() > 300
    assert 0.0 < engine.counters.ttft_error_s < 1.0


def test_a_tenant_that_was_refused_is_heard_again_only_when_its_queue_has_become_clearly_shorter() -> None:
    engine = overloadable(deadline_s=4.0)
    flood(engine, "noisy", n=1000)
    first_refused, predictions = 0.0, []
    for i in range(1000):
        engine.step()
        one = request(f"again {i}", n_prompt=16, max_tokens=2, tenant="noisy")
        error = refusal(engine, [one])
        first_refused = first_refused or one.predicted_ttft_s
        predictions.append(one.predicted_ttft_s)
        if error is None:
            break
    assert len(predictions) > 2, "it was refused for some steps, though its queue became shorter"
    assert predictions[-1] < CALM * max(predictions) * 1.1
    engine.drain()


def test_an_adapter_that_loads_too_slowly_is_the_reason_and_only_for_those_who_need_it() -> None:
    engine = overloadable(deadline_s=2.0, load_delay=24, arena_grains=8)
    for i in range(40):
        error = refusal(engine, [request(f"{i}", n_prompt=4, max_tokens=1, adapter=f"{i}")])
        if error is not None:
            break
        engine.drain()
    assert error is not None
    assert error.reason == "ttft_adapter"
    assert type(error) is Overloaded
    assert "the adapter is loading" in error.message
    assert refusal(engine, [request("base", n_prompt=4)]) is None
    assert refusal(engine, [request("resident", n_prompt=4, adapter=f"{i - 1}")]) is None
    engine.drain()


def test_a_pool_that_comes_free_too_slowly_is_the_reason() -> None:
    engine = stepped_engine(n_blocks=33, max_model_len=200, ttft_deadline_s=2.0)
    engine.engine.runner.step_s = STEP_S
    engine.submit(request("short", n_prompt=5, max_tokens=3))
    engine.drain()
    engine.submit(request("long", n_prompt=80, max_tokens=40))
    engine.step(8)
    error = refusal(engine, [request("big", n_prompt=70, tenant="other")])
    assert error is not None
    assert error.reason == "ttft_kv"
    assert refusal(engine, [request("small", n_prompt=5, tenant="other")]) is None
    engine.drain()


def test_without_a_deadline_nothing_is_predicted_too_late() -> None:
    engine = stepped_engine(max_queued_requests=1000)
    engine.submit(*[request(f"{i}", n_prompt=20, max_tokens=1) for i in range(300)])
    engine.drain()
    assert engine.counters.expired == engine.counters.refusals.total() == 0


def test_the_time_to_come_back_grows_with_the_queue_within_its_bounds_and_is_spread() -> None:
    for n_queued, low, high in ((2, EARLIEST_S, 1.2), (900, 48.0, LATEST_S)):
        engine = stepped_engine(max_queued_requests=n_queued)
        engine.submit(*[request(f"{i}", n_prompt=40) for i in range(n_queued)])
        waits = []
        for i in range(200):
            error = refusal(engine, [request(f"refused {i}")])
            assert error is not None
            assert error.retry_after_s is not None
            waits.append(error.retry_after_s)
        assert low <= min(waits) < max(waits) <= high
        assert len({round(wait, 3) for wait in waits}) > 100, "not all come back at once"


def test_the_margin_grows_with_those_who_came_late_and_sinks_slowly_with_the_others() -> None:
    margin = Margin(10.0)
    before = margin.seconds
    margin.observe(predicted_s=1.0, actual_s=9.9)
    assert margin.seconds > before
    for _ in range(99):
        margin.observe(predicted_s=5.0, actual_s=5.0)
    assert margin.seconds == pytest.approx(before), "one late in a hundred is what is allowed"
    for _ in range(10_000):
        margin.observe(predicted_s=5.0, actual_s=5.0)
    assert margin.seconds == MARGIN_LEAST * 10.0
    for _ in range(1000):
        margin.observe(predicted_s=0.0, actual_s=100.0)
    assert margin.seconds == MARGIN_MOST * 10.0
