"""Who runs when: budget, order, room, and every way out, on a model without tensors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorikeet_engine.errors import ContextLengthExceeded, EngineError, InvalidRequest, Overloaded
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.plan import Phase
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import RequestFailure, TokenOutput
from tests.support.scripted_engine_parts import VOCAB, ScriptedEngine, answer_alone, request, scripted_engine


def run(engine: ScriptedEngine, *, max_steps: int = 500) -> tuple[dict[str, list[int]], dict[str, EngineError]]:
    """Step until nothing is left; returns tokens and failures by request."""
    tokens: dict[str, list[int]] = {}
    failures: dict[str, EngineError] = {}
    for step in range(max_steps):
        if not engine.loop.has_work:
            return tokens, failures
        collect(engine, float(step), tokens, failures)
    raise AssertionError(f"requests are left after {max_steps} steps")


def collect(engine: ScriptedEngine, now: float, tokens: dict[str, list[int]], failures: dict[str, EngineError]) -> None:
    for event in engine.loop.step(now):
        if isinstance(event, TokenOutput):
            tokens.setdefault(event.request_id, []).append(event.token)
        elif isinstance(event, RequestFailure):
            failures[event.request_id] = event.error


def assert_nothing_in_use(engine: ScriptedEngine) -> None:
    for ledger in (engine.loop.kv.ledger, engine.loop.residency.ledger):
        assert ledger[MemoryState.USED] == ledger[MemoryState.RESERVED] == ledger[MemoryState.IN_FLIGHT] == 0
    assert engine.loop.kv.ledger[MemoryState.FREE] == engine.loop.kv.ledger.capacity
    assert engine.loop.kv.block_tables() == {}


requests = st.lists(
    st.tuples(
        st.integers(1, 40),  # prompt
        st.integers(1, 20),  # max_tokens
        st.sampled_from(["", "", "red", "green", "blue", "white", "black", "bad"]),
        st.integers(0, 12),  # arrival step
        st.one_of(st.none(), st.integers(0, 30)),  # abort step
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=120, deadline=None)
@given(
    requests,
    st.integers(9, 30),  # blocks
    st.integers(1, 6),  # seats
    st.integers(6, 20),  # token budget
    st.integers(1, 3),  # adapters a step
    st.integers(4, 12),  # arena grains
    st.integers(1, 4),  # load delay
    st.integers(1, 3),  # adapters on their way
)
def test_whatever_arrives_every_request_gets_its_own_answer_or_one_error_and_nothing_leaks(
    arrivals: list[tuple[int, int, str, int, int | None]],
    n_blocks: int,
    seats: int,
    budget: int,
    adapters: int,
    arena: int,
    delay: int,
    loading: int,
) -> None:
    engine = scripted_engine(
        n_blocks=n_blocks,
        max_num_seqs=seats,
        max_num_batched_tokens=budget,
        max_adapters_per_step=adapters,
        arena_grains=arena,
        load_delay=delay,
        max_loading=loading,
    )
    tokens: dict[str, list[int]] = {}
    failures: dict[str, EngineError] = {}
    submitted: dict[str, Request] = {}
    aborted: set[str] = set()
    for step in range(2000):
        for i, (n_prompt, max_tokens, adapter, arrival, _) in enumerate(arrivals):
            if arrival == step:
                item = request(f"r{i}", n_prompt=n_prompt, max_tokens=max_tokens, adapter=adapter)
                try:
                    engine.loop.submit(item)
                    submitted[item.request_id] = item
                except ContextLengthExceeded:
                    assert engine.loop.kv.blocks_for(n_prompt + max_tokens) > n_blocks - 1
        for i, (*_, abort_step) in enumerate(arrivals):
            if abort_step == step and engine.loop.scheduler.abort(f"r{i}"):
                aborted.add(f"r{i}")
        collect(engine, float(step), tokens, failures)
        assert engine.loop.residency.recount() == {s: engine.loop.residency.ledger[s] for s in MemoryState}
        if step > 40 and not engine.loop.has_work:
            break
    assert not engine.loop.has_work, "a request starved"
    for request_id, item in submitted.items():
        expected = answer_alone(item.prompt, item.max_tokens, item.adapter)
        if request_id in failures:
            assert item.adapter is not None
            assert item.adapter.digest == "bad"
            assert request_id not in tokens
        elif request_id in aborted:
            got = tokens.get(request_id, [])
            assert got == expected[: len(got)]
        else:
            assert tokens[request_id] == expected
    for plan in engine.runner.plans:
        assert plan.n_tokens <= budget
        assert len(plan.rows) <= seats
        assert len({row.adapter for row in plan.rows if row.adapter}) <= adapters
        order = [(row.phase, row.adapter is None, row.adapter.digest if row.adapter else "") for row in plan.rows]
        assert order == sorted(order)
    assert_nothing_in_use(engine)


def test_a_long_prompt_is_computed_in_chunks_while_others_decode() -> None:
    engine = scripted_engine(max_num_batched_tokens=8)
    engine.loop.submit(request("short", n_prompt=3, max_tokens=10))
    engine.loop.step(0.0)
    engine.loop.submit(request("long", n_prompt=30, max_tokens=2))
    run(engine)
    chunks = [row for plan in engine.runner.plans for row in plan.rows if row.request_id == "long"]
    assert [len(row.token_ids) for row in chunks if row.phase is Phase.PREFILL] == [7, 7, 7, 7, 2]
    assert [row.samples for row in chunks] == [False, False, False, False, True, True]
    assert [row.start for row in chunks] == [0, 7, 14, 21, 28, 30]


def test_a_request_is_admitted_only_with_budget_left_for_it() -> None:
    engine = scripted_engine(max_num_batched_tokens=8)
    engine.loop.submit(request("long", n_prompt=30))
    engine.loop.submit(request("next", n_prompt=3))
    engine.loop.step(0.0)
    assert (engine.loop.scheduler.n_running, engine.loop.scheduler.n_waiting) == (1, 1)


def test_many_waiting_adapters_are_loaded_a_few_at_a_time_first_come_first() -> None:
    engine = scripted_engine(max_loading=2, load_delay=3, arena_grains=40, max_adapters_per_step=8)
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        engine.loop.submit(request(name, adapter=f"digest-{name}"))
    engine.loop.step(0.0)
    assert [key.digest for key in engine.loader.started] == ["digest-a", "digest-b"]
    tokens, _ = run(engine)
    assert set(tokens) == set(names)
    assert [key.digest for key in engine.loader.started] == [f"digest-{name}" for name in names]


def test_requests_start_in_the_order_they_came() -> None:
    engine = scripted_engine(max_num_seqs=2)
    for i in range(5):
        engine.loop.submit(request(f"r{i}", max_tokens=3))
    run(engine)
    first_seen = list(dict.fromkeys(row.request_id for plan in engine.runner.plans for row in plan.rows))
    assert first_seen == [f"r{i}" for i in range(5)]


def test_a_request_whose_adapter_is_still_read_lets_others_pass() -> None:
    engine = scripted_engine(load_delay=5)
    engine.loop.submit(request("with-adapter", adapter="red"))
    engine.loop.submit(request("base"))
    tokens, _ = run(engine)
    assert engine.runner.plans[0].rows[0].request_id == "base"
    assert set(tokens) == {"with-adapter", "base"}


def test_a_rare_adapter_is_not_starved_by_a_busy_one_in_an_arena_for_one() -> None:
    engine = scripted_engine(arena_grains=4, max_num_seqs=2)
    engine.loop.submit(request("busy-0", adapter="red", max_tokens=6))
    engine.loop.step(0.0)
    engine.loop.step(0.0)
    engine.loop.submit(request("rare", adapter="blue", max_tokens=2))
    for i in range(1, 10):
        engine.loop.submit(request(f"busy-{i}", adapter="red", max_tokens=6))
    run(engine)
    first_seen = list(dict.fromkeys(row.request_id for plan in engine.runner.plans for row in plan.rows))
    assert first_seen.index("rare") == 2, "only busy-1 may pass, while the rare adapter was still being read"


def test_more_adapters_than_a_step_may_hold_all_get_their_answers() -> None:
    engine = scripted_engine(max_adapters_per_step=2, arena_grains=40)
    for i, adapter in enumerate(["red", "green", "blue", "white", ""]):
        engine.loop.submit(request(f"r{i}", adapter=adapter))
    tokens, failures = run(engine)
    assert len(tokens) == 5
    assert not failures


def test_an_adapter_that_cannot_be_loaded_fails_its_requests_only() -> None:
    engine = scripted_engine()
    engine.loop.submit(request("good", adapter="red"))
    engine.loop.submit(request("lost", adapter="bad"))
    tokens, failures = run(engine)
    assert set(tokens) == {"good"}
    assert failures["lost"].code == "adapter_unavailable"


def test_an_adapter_larger_than_the_arena_fails_its_request_only() -> None:
    engine = scripted_engine(arena_grains=8, adapter_grains=9)
    engine.loop.submit(request("huge", adapter="red"))
    engine.loop.submit(request("base"))
    tokens, failures = run(engine)
    assert set(tokens) == {"base"}
    assert "the arena holds" in failures["huge"].message


def test_a_failed_step_fails_its_requests_and_gives_everything_back() -> None:
    engine = scripted_engine()
    engine.loop.submit(request("a", adapter="red"))
    engine.loop.step(0.0)
    engine.runner.fail_next = True
    _, failures = run(engine)
    assert failures["a"].code == "engine_failure"
    engine.loop.submit(request("b", adapter="red"))
    tokens, _ = run(engine)
    assert len(tokens["b"]) == 4
    assert_nothing_in_use(engine)


def test_a_request_without_finite_logits_fails_alone() -> None:
    engine = scripted_engine()
    engine.runner.not_finite = {"a"}
    engine.loop.submit(request("a"))
    engine.loop.submit(request("b"))
    tokens, failures = run(engine)
    assert set(tokens) == {"b"}
    assert failures["a"].code == "engine_failure"
    assert_nothing_in_use(engine)


def test_an_image_nobody_waits_for_is_dropped() -> None:
    engine = scripted_engine(load_delay=2)
    engine.loop.submit(request("a", adapter="red"))
    engine.loop.step(0.0)
    engine.loop.abort("a")
    for step in range(4):
        engine.loop.step(float(step))
    assert engine.loop.residency.overview() == []


@pytest.mark.parametrize(
    ("changes", "error", "param"),
    [
        ({"n_prompt": 0}, InvalidRequest, "prompt"),
        ({"max_tokens": 0}, InvalidRequest, "max_tokens"),
        ({"max_tokens": -3}, InvalidRequest, "max_tokens"),
        ({"n_prompt": 60, "max_tokens": 5}, ContextLengthExceeded, "max_tokens"),
    ],
)
def test_a_request_that_can_never_run_is_refused(changes: dict[str, int], error: type[EngineError], param: str) -> None:
    engine = scripted_engine()
    item = request("r", n_prompt=changes.get("n_prompt", 5), max_tokens=changes.get("max_tokens", 4))
    with pytest.raises(error) as refusal:
        engine.loop.submit(item)
    assert refusal.value.param == param
    assert not engine.loop.has_work


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    engine = scripted_engine()
    item = request("r")
    item.prompt = (1, VOCAB)
    with pytest.raises(InvalidRequest, match="999"):
        engine.loop.submit(item)


def test_a_full_queue_refuses_the_next_request() -> None:
    engine = scripted_engine(max_queued_requests=2)
    engine.loop.submit(request("a"))
    engine.loop.submit(request("b"))
    with pytest.raises(Overloaded):
        engine.loop.submit(request("c"))


def test_a_request_id_in_use_is_refused() -> None:
    engine = scripted_engine()
    engine.loop.submit(request("a"))
    with pytest.raises(InvalidRequest, match="in use"):
        engine.loop.submit(request("a"))
