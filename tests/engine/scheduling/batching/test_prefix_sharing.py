"""Prompts that begin alike: what is computed once, for whom, and what is counted."""

from __future__ import annotations

from collections import Counter

import pytest

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.kv.prefix_index import MissReason
from lorikeet_engine.memory.ledger import Owner
from lorikeet_engine.scheduling.batching.starter import MAX_DEFERRALS
from tests.support.scripted_engine_parts import answer_alone, request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

PROMPT = tuple(range(1, 61))


def cached(engine: SteppedEngine, *names: str) -> list[int]:
    return [engine.admitted[name].cached_tokens for name in names]


def test_a_twin_in_the_same_step_finds_nothing_yet_and_waits_a_step_for_it() -> None:
    engine = stepped_engine(max_num_batched_tokens=40)
    engine.submit(*[request(name, prompt=PROMPT[:9]) for name in ("first", "twin")])
    plan = engine.step()
    assert plan is not None
    assert [row.request_id for row in plan.rows] == ["first"]
    engine.step()
    assert cached(engine, "first", "twin") == [0, 8]
    engine.drain()
    assert engine.tokens["first"] == engine.tokens["twin"]


def test_a_twin_that_has_waited_long_enough_computes_what_is_not_there() -> None:
    engine = stepped_engine(max_num_batched_tokens=40)
    first, twin = (request(name, prompt=PROMPT[:9]) for name in ("first", "twin"))
    twin.n_deferrals = MAX_DEFERRALS
    engine.submit(first, twin)
    engine.step()
    assert cached(engine, "first", "twin") == [0, 0]
    engine.drain()


@pytest.mark.parametrize("quantum", [0.0, 16.0])
def test_a_step_that_waits_for_a_twin_counts_once_however_often_it_is_offered(quantum: float) -> None:
    """As the head of its tenant it is offered for its adapter first, and then again in its tenant's turn."""
    engine = stepped_engine(n_blocks=130, max_model_len=400, locality_quantum=quantum)
    prompt = tuple(range(1, 201))
    engine.submit(request("decodes", n_prompt=1, max_tokens=60))
    engine.step()
    engine.submit(request("first", prompt=prompt))
    engine.step()
    twin = request("twin", prompt=prompt)
    engine.submit(twin)
    for n_steps in range(1, 5):
        engine.step()
        assert twin.n_deferrals == n_steps
    engine.drain()


def test_others_start_while_a_twin_waits() -> None:
    engine = stepped_engine(max_num_batched_tokens=40)
    engine.submit(*[request(name, prompt=PROMPT[:9]) for name in ("first", "twin")], request("other", n_prompt=9))
    engine.step()
    assert list(engine.admitted) == ["first", "other"]
    engine.drain()


@pytest.mark.parametrize(("n_prompt", "caching"), [(4, True), (9, False)])
def test_twins_without_a_block_to_share_start_together(n_prompt: int, caching: bool) -> None:
    engine = stepped_engine(enable_prefix_caching=caching, max_num_batched_tokens=40)
    engine.submit(*[request(name, prompt=PROMPT[:n_prompt]) for name in ("first", "twin")])
    engine.step()
    assert cached(engine, "first", "twin") == [0, 0]
    engine.drain()


def test_when_the_first_is_aborted_its_twin_goes_on_from_what_was_computed() -> None:
    engine = stepped_engine(max_num_batched_tokens=10)
    engine.submit(*[request(name, prompt=PROMPT[:40]) for name in ("first", "twin")])
    engine.step(2)
    engine.loop.abort("first")
    engine.step()
    assert cached(engine, "twin") == [16]
    engine.drain()


@pytest.mark.parametrize("n_prompt", [1, 4, 5, 7, 8, 9, 16, 17])
def test_the_last_token_of_a_prompt_is_always_computed(n_prompt: int) -> None:
    engine = stepped_engine()
    for name in ("cold", "warm"):
        engine.submit(request(name, prompt=PROMPT[:n_prompt]))
        engine.drain()
    expected = (n_prompt - 1) // 4 * 4
    assert cached(engine, "warm") == [expected]
    assert engine.rows_of("warm")[0].start == expected
    assert engine.rows_of("warm")[0].token_ids[-1] == PROMPT[n_prompt - 1]
    assert engine.tokens["cold"] == engine.tokens["warm"]


@pytest.mark.parametrize(("max_tokens", "n_found"), [(3, 4), (4, 8)])
def test_a_further_turn_finds_the_answer_too_but_for_its_last_token_which_was_never_written(
    max_tokens: int, n_found: int
) -> None:
    """Five prompt tokens and three of answer fill two blocks, but the eighth was sampled and not stored."""
    engine = stepped_engine()
    engine.submit(request("turn 1", prompt=PROMPT[:5], max_tokens=max_tokens))
    engine.drain()
    second = (*PROMPT[:5], *answer_alone(PROMPT[:5], max_tokens, None), 5, 6, 7, 8)
    engine.submit(request("turn 2", prompt=second))
    engine.drain()
    assert cached(engine, "turn 2") == [n_found]


def test_only_the_same_tenant_with_the_same_adapter_and_salt_finds_a_prefix() -> None:
    """Both halves: the first line shows that the cache works at all."""
    engine = stepped_engine()
    owners = {"warm": ("anna", "v1", b"s"), "same": ("anna", "v1", b"s"), "other tenant": ("ben", "v1", b"s")}
    owners |= {"other version": ("anna", "v2", b"s"), "base": ("anna", "", b"s"), "other salt": ("anna", "v1", b"t")}
    for name, (tenant, adapter, salt) in owners.items():
        engine.submit(request(name, prompt=PROMPT[:12], tenant=tenant, adapter=adapter, cache_salt=salt))
        engine.drain()
    assert cached(engine, *owners) == [0, 8, 0, 0, 0, 0]
    assert engine.counters.prefix_hits == Counter({("anna", "v1"): 8, ("ben", "v1"): 0, ("anna", "v2"): 0})
    assert engine.counters.prefix_queries == Counter(
        {("anna", "v1"): 36, ("anna", "v2"): 12, ("anna", ""): 12, ("ben", "v1"): 12}
    )


def test_each_miss_is_counted_with_its_reason() -> None:
    engine = stepped_engine(n_blocks=12)
    turns = [
        (MissReason.COLD, request("cold", prompt=PROMPT[:9])),
        (MissReason.PARTIAL_TAIL, request("tail", prompt=PROMPT[:10])),
        (MissReason.TOO_SHORT, request("short", prompt=PROMPT[:4])),
        (MissReason.SALT, request("salt", prompt=PROMPT[:9], cache_salt=b"other")),
        (MissReason.ADAPTER_VERSION, request("version", prompt=PROMPT[:9], adapter="red")),
        (MissReason.COLD, request("fills the pool", n_prompt=40)),
        (MissReason.EVICTED, request("evicted", prompt=PROMPT[:9])),
    ]
    for reason, one in turns:
        before = Counter(engine.counters.misses)
        engine.submit(one)
        engine.drain()
        assert engine.counters.misses - before == Counter({reason: 1}), one.request_id
    off = stepped_engine(enable_prefix_caching=False)
    off.submit(request("r"))
    off.drain()
    assert off.counters.misses == Counter({MissReason.DISABLED: 1})


def test_a_request_that_is_tried_many_times_is_counted_once() -> None:
    engine = stepped_engine(n_blocks=10)
    engine.submit(request("running", n_prompt=9, max_tokens=20))
    engine.step()
    engine.submit(request("blocked", n_prompt=25))
    engine.step(10)
    assert "blocked" not in engine.admitted
    engine.drain()
    assert engine.counters.prefix_queries[("tenant", "")] == 9 + 25
    assert engine.counters.misses.total() == 2


def test_what_a_preempted_request_finds_again_has_its_own_counter() -> None:
    engine = stepped_engine(n_blocks=13, preemption="recompute")
    engine.submit(*[request(f"{i}", n_prompt=9, max_tokens=30) for i in range(3)])
    engine.drain()
    assert engine.counters.preemptions["recompute"] > 0
    assert engine.counters.prefix_hits[("tenant", "")] == 0
    assert engine.counters.prefix_queries[("tenant", "")] == 27
    assert engine.counters.recomputed_tokens > 0


def test_a_prefix_outlives_its_adapters_stay_in_the_arena() -> None:
    """It depends on the version, not on where the version's bytes are."""
    engine = stepped_engine(arena_grains=4)
    for name, adapter in (("warm", "red"), ("other", "blue"), ("again", "red")):
        engine.submit(request(name, prompt=PROMPT[:12], adapter=adapter))
        engine.drain()
    assert engine.residency.evictions["room"] == 2
    assert cached(engine, "again") == [8]


def test_a_retired_adapters_prefixes_are_gone_at_once() -> None:
    engine = stepped_engine()
    for adapter in ("red", ""):
        engine.submit(request(f"warm {adapter}", prompt=PROMPT[:12], adapter=adapter))
        engine.drain()
    engine.loop.retire(AdapterKey("tenant", "red"))
    assert engine.kv.ledger.held_by_owner().keys() == {Owner("tenant")}
    for adapter, n_found in (("red", 0), ("", 8)):
        engine.submit(request(f"again {adapter}", prompt=PROMPT[:12], adapter=adapter))
        engine.drain()
        assert cached(engine, f"again {adapter}") == [n_found]


def test_what_still_runs_on_a_retired_adapter_leaves_no_prefix_behind() -> None:
    engine = stepped_engine()
    engine.submit(request("running", prompt=PROMPT[:12], max_tokens=20, adapter="red"))
    engine.step_until(lambda: engine.tokens)
    engine.loop.retire(AdapterKey("tenant", "red"))
    engine.drain()
    assert len(engine.tokens["running"]) == 20
    assert engine.kv.ledger.held_by_owner() == {}
