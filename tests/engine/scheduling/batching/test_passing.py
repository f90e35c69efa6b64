"""A tenant with nothing in the batch does not wait for the rest of another's long prompt, and pays for passing it."""

from __future__ import annotations

from collections import Counter

from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

BUDGET, LONG = 16, 160


def flooded() -> SteppedEngine:
    """One tenant's prompt takes ten steps, and more of them wait."""
    engine = stepped_engine(
        n_blocks=400, max_num_seqs=8, max_num_batched_tokens=BUDGET, max_queued_requests=100, max_model_len=256
    )
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


def test_a_prompt_of_several_steps_stays_ahead_once_it_has_passed() -> None:
    engine = flooded()
    engine.submit(request("quiet", n_prompt=3 * BUDGET, max_tokens=1, tenant="quiet"))
    assert steps_to_first_token(engine, "quiet") == 3
    engine.drain()


def test_who_passed_is_behind_by_its_prompt_and_passes_no_more_until_the_others_have_caught_up() -> None:
    engine = flooded()
    engine.submit(request("quiet 0", n_prompt=2 * BUDGET, max_tokens=1, tenant="quiet"))
    assert steps_to_first_token(engine, "quiet 0") == 2
    engine.submit(request("quiet 1", n_prompt=10, max_tokens=1, tenant="quiet"))
    # Two steps' tokens and an answer's price: the flood's counter reaches the quiet tenant's within three steps.
    assert 2 <= steps_to_first_token(engine, "quiet 1") <= 4
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
