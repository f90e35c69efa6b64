"""What a step computes: everybody's decode, then prompts by whole blocks, within the token budget."""

from __future__ import annotations

import pytest

from lorikeet_engine.errors import ContextLengthExceeded, EngineError, InvalidRequest
from lorikeet_engine.scheduling.plan import Phase, StepPlan
from lorikeet_engine.scheduling.request import FinishReason
from tests.support.scripted_engine_parts import VOCAB, answer_alone, request, scripted_engine
from tests.support.stepped_engine import SteppedEngine, stepped_engine


def chunks(engine: SteppedEngine, request_id: str) -> list[int]:
    return [len(row.token_ids) for row in engine.rows_of(request_id) if row.phase is Phase.PREFILL]


def shape(plan: StepPlan | None) -> list[tuple[str, int]]:
    assert plan is not None
    return [(row.request_id, len(row.token_ids)) for row in plan.rows]


def engine_with_decodes(n: int, *, max_tokens: int = 12, **settings: object) -> SteppedEngine:
    """`n` requests, called a, b, …, that have their first token."""
    engine = stepped_engine(**settings)
    for name in "abcdefgh"[:n]:
        engine.submit(request(name, n_prompt=3, max_tokens=max_tokens))
    engine.step_until(lambda: len(engine.tokens) == n)
    return engine


def test_everybody_decodes_and_a_prompt_takes_the_whole_blocks_that_are_left_of_the_budget() -> None:
    engine = engine_with_decodes(3)
    engine.submit(request("long", n_prompt=30))
    assert shape(engine.step()) == [("a", 1), ("b", 1), ("c", 1), ("long", 12)]
    engine.drain()


def test_chunks_end_on_a_blocks_border_but_for_the_last_and_only_the_last_is_sampled() -> None:
    engine = engine_with_decodes(1, max_num_batched_tokens=12)
    engine.submit(request("long", n_prompt=30, max_tokens=2))
    engine.drain()
    rows = engine.rows_of("long")
    assert [(row.start, len(row.token_ids), row.samples) for row in rows] == [
        (0, 8, False),
        (8, 8, False),
        (16, 8, False),
        (24, 6, True),
        (30, 1, True),
    ]


def test_a_prompt_of_many_budgets_goes_on_beside_as_many_decodes_as_there_are_seats() -> None:
    """Seven decodes leave one block and a token of the budget, the least that a configuration may leave."""
    engine = engine_with_decodes(7, max_tokens=20, n_blocks=100, max_num_batched_tokens=12)
    engine.submit(request("long", n_prompt=33))
    engine.step_until(lambda: "long" in engine.tokens)
    assert chunks(engine, "long") == [4] * 7 + [5]
    assert {len(plan.rows) for plan in engine.plans[-8:]} == {8}, "nobody's decode was left out meanwhile"
    engine.drain()


def test_no_step_exceeds_the_budget_and_none_leaves_a_block_of_it_unused_while_prompts_wait() -> None:
    engine = stepped_engine(n_blocks=100, max_num_batched_tokens=17)
    engine.submit(*[request(f"{i}", n_prompt=9 + i, max_tokens=6) for i in range(12)])
    while engine.scheduler.n_waiting:
        plan = engine.step()
        assert plan is not None
        assert plan.n_tokens <= 17
        is_full = engine.scheduler.n_running == 8
        assert is_full or plan.n_tokens > 17 - 4 or not engine.scheduler.n_waiting
    engine.drain()


def test_prompts_that_were_begun_go_on_before_others_begin_the_oldest_first() -> None:
    engine = stepped_engine()
    engine.submit(request("a", n_prompt=20), request("b", n_prompt=20), request("c", n_prompt=6))
    assert shape(engine.step()) == [("a", 16)]
    assert shape(engine.step()) == [("a", 4), ("b", 12)]
    assert shape(engine.step()) == [("a", 1), ("b", 8), ("c", 6)]
    engine.drain()


def test_what_is_left_of_the_budget_may_finish_a_prompt_but_begins_no_part_of_a_block() -> None:
    engine = stepped_engine(max_num_batched_tokens=11)
    engine.submit(request("a", n_prompt=8), request("b", n_prompt=9))
    assert shape(engine.step()) == [("a", 8)], "three tokens are no block of b's"
    engine.submit(request("c", n_prompt=1))
    assert shape(engine.step()) == [("a", 1), ("b", 9), ("c", 1)]
    engine.drain()


def test_nobody_is_admitted_without_budget_for_it() -> None:
    engine = stepped_engine(max_num_batched_tokens=12)
    engine.submit(request("long", n_prompt=30), request("next", n_prompt=3))
    engine.step()
    assert (engine.scheduler.n_running, engine.scheduler.n_waiting) == (1, 1)
    engine.drain()


def test_requests_of_a_tenant_start_in_the_order_they_came_as_seats_come_free() -> None:
    engine = stepped_engine(max_num_seqs=2)
    engine.submit(*[request(f"{i}", max_tokens=3) for i in range(5)])
    engine.step()
    assert (engine.scheduler.n_running, engine.scheduler.n_waiting) == (2, 3)
    engine.drain()
    assert engine.order_of_starts() == ["0", "1", "2", "3", "4"]
    assert max(len(plan.rows) for plan in engine.plans) == 2


def test_without_chunking_a_prompt_waits_until_it_fits_whole_and_is_not_overtaken_again_and_again() -> None:
    engine = engine_with_decodes(3, max_tokens=8, enable_chunked_prefill=False)
    engine.submit(request("whole", n_prompt=14, max_tokens=2))
    engine.submit(*[request(f"small {i}", n_prompt=3, max_tokens=8) for i in range(30)])
    engine.step_until(lambda: "whole" in engine.tokens, max_steps=10)
    assert chunks(engine, "whole") == [14]
    engine.drain()


def test_without_chunking_what_no_step_can_compute_whole_is_refused() -> None:
    """Also with its answer: after a preemption both are computed again."""
    engine = stepped_engine(enable_chunked_prefill=False)
    for n_prompt, max_tokens in ((17, 1), (10, 8)):
        with pytest.raises(ContextLengthExceeded, match="16 tokens"):
            engine.submit(request("r", n_prompt=n_prompt, max_tokens=max_tokens))
    engine.submit(request("fits", n_prompt=10, max_tokens=7))
    engine.drain()
    assert len(engine.tokens["fits"]) == 7


def test_rows_of_one_adapter_stand_together_inside_each_phase_and_the_base_model_comes_last() -> None:
    engine = stepped_engine(max_num_batched_tokens=40)
    names = ["base 1", "red 1", "blue 1", "red 2", "base 2"]
    engine.submit(*[request(name, n_prompt=4, max_tokens=20, adapter=_adapter(name)) for name in names])
    engine.step_until(lambda: len(engine.tokens) == 5)
    late = ["base 3", "blue 3", "red 3"]
    engine.submit(*[request(name, n_prompt=4, adapter=_adapter(name)) for name in late])
    plan = engine.step()
    assert plan is not None
    assert [(row.phase.name, row.request_id) for row in plan.rows] == [
        ("DECODE", "blue 1"),
        ("DECODE", "red 1"),
        ("DECODE", "red 2"),
        ("DECODE", "base 1"),
        ("DECODE", "base 2"),
        ("PREFILL", "blue 3"),
        ("PREFILL", "red 3"),
        ("PREFILL", "base 3"),
    ]
    engine.drain()


def _adapter(name: str) -> str:
    word = name.split()[0]
    return "" if word == "base" else word


def test_the_index_of_the_draw_counts_output_tokens_however_the_prompt_was_chunked() -> None:
    for budget in (9, 12, 40):
        engine = stepped_engine(max_num_batched_tokens=budget)
        engine.submit(request("r", n_prompt=30, max_tokens=3))
        engine.drain()
        assert [row.n_generated for row in engine.rows_of("r") if row.samples] == [0, 1, 2]


def test_a_request_ends_at_its_last_token_or_at_the_end_token() -> None:
    answer = answer_alone(request("r").prompt, 6, None)
    engine = stepped_engine(eos_token_ids=frozenset({answer[2]}))
    engine.submit(request("r", max_tokens=6), request("short", max_tokens=1))
    engine.drain()
    assert engine.tokens["r"] == answer[:3]
    assert engine.finished == {"r": FinishReason.STOP, "short": FinishReason.LENGTH}


@pytest.mark.parametrize(
    ("changes", "error", "param"),
    [
        ({"n_prompt": 0}, InvalidRequest, "prompt"),
        ({"prompt": (1, VOCAB)}, InvalidRequest, "prompt"),
        ({"prompt": (1, -1)}, InvalidRequest, "prompt"),
        ({"max_tokens": 0}, InvalidRequest, "max_tokens"),
        ({"max_tokens": -3}, InvalidRequest, "max_tokens"),
        ({"weight": 0.0}, InvalidRequest, None),
        ({"weight": float("nan")}, InvalidRequest, None),
        ({"n_prompt": 60, "max_tokens": 5}, ContextLengthExceeded, "max_tokens"),
    ],
)
def test_a_request_that_can_never_run_is_refused(
    changes: dict[str, object], error: type[EngineError], param: str | None
) -> None:
    engine = stepped_engine()
    with pytest.raises(error) as refusal:
        engine.submit(request("r", **changes))  # type: ignore[arg-type]
    assert refusal.value.param == param
    assert not engine.loop.has_work


def test_a_request_longer_than_the_pool_is_refused_and_one_of_exactly_its_size_runs_to_its_end() -> None:
    engine = stepped_engine(n_blocks=9)
    with pytest.raises(ContextLengthExceeded):
        engine.submit(request("r", n_prompt=30, max_tokens=3))
    engine.submit(request("r", n_prompt=16, max_tokens=16))
    engine.drain()
    assert len(engine.tokens["r"]) == 16


def test_an_id_that_waits_or_runs_is_in_use_until_the_request_has_ended() -> None:
    engine = stepped_engine()
    engine.submit(request("a"))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="in use"):
            engine.submit(request("a"))
        engine.step()
    engine.drain()
    scripted = engine.engine
    scripted.loop.submit([request("a")], engine.now)


def test_an_engine_without_work_plans_nothing() -> None:
    loop = scripted_engine().loop
    assert loop.step(0.0) == []
    assert not loop.has_work
