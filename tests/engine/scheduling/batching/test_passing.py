"""A short prompt of a tenant that had little does not wait for the rest of another's long one, and is paid for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lorikeet_engine.scheduling.request import Stage
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

BUDGET, LONG = 16, 160


def flooded(**limits: Any) -> SteppedEngine:
    """One tenant's prompt takes ten steps, and more of them wait."""
    limits = {"max_num_batched_tokens": BUDGET, "max_queued_requests": 100, "max_model_len": 256} | limits
    engine = stepped_engine(n_blocks=400, max_num_seqs=8, **limits)
    for i in range(6):
        engine.submit(request(f"flood {i}", n_prompt=LONG, max_tokens=1, tenant="flood"))
    engine.step(2)
    return engine


def steps_to_first_token(engine: SteppedEngine, name: str) -> int:
    n_steps = 0
    while name not in engine.tokens:
        engine.step()
        n_steps += 1
    return n_steps


def test_a_quiet_tenants_prompt_goes_before_the_rest_of_a_begun_one() -> None:
    engine = flooded()
    engine.submit(request("quiet", n_prompt=10, max_tokens=1, tenant="quiet"))
    assert steps_to_first_token(engine, "quiet") == 1
    assert "flood 0" not in engine.tokens
    engine.drain()


def test_what_a_step_can_finish_is_not_passed() -> None:
    engine = flooded()
    engine.step(7)  # ten steps to a prompt: its last sixteen tokens are left
    engine.submit(request("quiet", n_prompt=10, max_tokens=1, tenant="quiet"))
    engine.step()
    assert "flood 0" in engine.tokens
    assert "quiet" not in engine.tokens
    assert steps_to_first_token(engine, "quiet") == 1
    engine.drain()


def test_a_prompt_of_several_steps_stays_ahead_once_it_has_passed() -> None:
    engine = flooded(barrier_after_s=60.0)
    engine.submit(request("quiet", n_prompt=3 * BUDGET, max_tokens=1, tenant="quiet"))
    assert steps_to_first_token(engine, "quiet") == 3
    engine.drain()


def test_short_prompts_that_keep_passing_get_their_tenant_no_more_than_its_share() -> None:
    engine = flooded()
    served: Counter[str] = Counter()
    n_sent = 0
    while engine.requests["flood 5"].stage is not Stage.ENDED:
        if len(engine.finished) + 40 > n_sent and n_sent < 200:
            engine.submit(request(f"quiet {n_sent}", n_prompt=10, max_tokens=1, tenant="quiet"))
            n_sent += 1
        plan = engine.step()
        for row in plan.rows if plan else ():
            served[row.request_id.split()[0]] += len(row.token_ids)
        if n_sent < 200:
            assert served["quiet"] <= served["flood"] + LONG
    engine.drain()


def test_tenants_that_send_alike_finish_their_prompts_one_after_another() -> None:
    """Taking turns within prompts would make every first token as late as the last one."""
    engine = stepped_engine(
        n_blocks=400, max_num_seqs=8, max_num_batched_tokens=BUDGET, max_queued_requests=100, max_model_len=256
    )
    for i in range(4):
        for tenant in ("a", "b"):
            engine.submit(request(f"{tenant} {i}", n_prompt=LONG, max_tokens=1, tenant=tenant))
    begun_at_once = 0
    while engine.loop.has_work:
        plan = engine.step()
        begun_at_once = max(begun_at_once, len(plan.rows) if plan else 0)
    assert begun_at_once <= 2
    assert Counter(name.split()[0] for name in engine.finished) == {"a": 4, "b": 4}
    engine.drain()


@pytest.mark.parametrize("credit", [0.0, 1024.0])
def test_a_begun_prompt_gets_on_whoever_comes(credit: float) -> None:
    """A stranger's prompt in every step, as large as the step: without a bound they would all be done before."""
    engine = stepped_engine(
        n_blocks=400, max_num_seqs=8, max_num_batched_tokens=BUDGET, max_model_len=256, idle_credit=credit
    )
    engine.submit(request("long", n_prompt=LONG, max_tokens=1, tenant="long"))
    engine.step(2)
    n_steps = 0
    while "long" not in engine.tokens:
        engine.submit(request(f"stranger {n_steps}", n_prompt=BUDGET - 1, max_tokens=1, tenant=f"stranger {n_steps}"))
        engine.step()
        n_steps += 1
        assert n_steps < 2 * LONG / BUDGET
    engine.drain()


def test_nobody_passes_while_a_request_has_waited_too_long_for_memory() -> None:
    engine = stepped_engine(
        n_blocks=100, max_num_seqs=8, max_num_batched_tokens=BUDGET, max_model_len=256, barrier_after_s=0.0
    )
    engine.submit(request("first", n_prompt=LONG - 10, max_tokens=20, tenant="flood"))
    engine.submit(request("second", n_prompt=250, max_tokens=1, tenant="flood"))  # no blocks for it beside the first
    engine.submit(request("third", n_prompt=80, max_tokens=1, tenant="flood"))
    engine.step_until(lambda: "third" in engine.admitted)
    engine.submit(request("quiet", n_prompt=10, max_tokens=1, tenant="quiet"))
    engine.step_until(lambda: "quiet" in engine.admitted or "second" in engine.admitted)
    assert "second" in engine.admitted
    engine.drain()
