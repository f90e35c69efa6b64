"""Several answers to one prompt: computed once, shared by whole blocks, told apart by seed alone."""

from __future__ import annotations

import pytest

from lorikeet_engine.errors import Overloaded
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request, Stage
from tests.support.scripted_engine_parts import answer_alone, request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

BLOCK = 4


def sequences(n: int, *, name: str = "r", n_prompt: int = 10, **more: object) -> list[Request]:
    """As the server makes them for one submit with `n`: one prompt, seeds apart."""
    prompt = request(name, n_prompt=n_prompt).prompt
    names = [name if i == 0 else f"{name}#{i}" for i in range(n)]
    made = [request(one, prompt=prompt, **more) for one in names]  # type: ignore[arg-type]
    for i, one in enumerate(made):
        one.sampling = SamplingParams(temperature=1.0, seed=7 + (i << 64))
    return made


def n_prompt_tokens_computed(engine: SteppedEngine) -> int:
    return sum(len(row.token_ids) for plan in engine.plans for row in plan.rows if not row.n_generated)


@pytest.mark.parametrize("n_prompt", [1, 3, 4, 5, 7, 8, 9])
def test_the_prompt_is_computed_once_and_its_last_token_once_for_each_answer(n_prompt: int) -> None:
    """At, below and above the border of a block."""
    engine = stepped_engine()
    engine.submit_together(sequences(3, n_prompt=n_prompt, max_tokens=9))
    engine.drain()
    assert n_prompt_tokens_computed(engine) == n_prompt + 2
    assert [len(engine.tokens[name]) for name in ("r", "r#1", "r#2")] == [9, 9, 9]
    assert engine.tokens["r"] == engine.tokens["r#1"] == engine.tokens["r#2"], "the scripted model is greedy"


@pytest.mark.parametrize(("n_prompt", "n_shared"), [(3, 0), (4, 0), (5, 1), (7, 1), (8, 1), (9, 2)])
def test_full_blocks_before_the_last_token_are_shared_and_a_partial_one_is_copied(n_prompt: int, n_shared: int) -> None:
    engine = stepped_engine(enable_prefix_caching=False)
    engine.submit_together(sequences(3, n_prompt=n_prompt, max_tokens=9))
    engine.step_until(lambda: len(engine.admitted) == 3)
    parent, *children = engine.kv.block_tables().values()
    for child in children:
        assert child[:n_shared] == parent[:n_shared]
        assert not set(child[n_shared:]) & set(parent[n_shared:])
    assert len(set(children[0][n_shared:]) & set(children[1][n_shared:])) == 0
    has_tail = (n_prompt - 1) % BLOCK > 0
    assert [len(plan.copies) for plan in engine.plans if plan.copies] == ([2] if has_tail else [])
    engine.drain()


def test_siblings_wait_while_the_first_computes_the_prompt_and_start_when_it_has() -> None:
    engine = stepped_engine(n_blocks=60)
    engine.submit_together(sequences(3, n_prompt=40))
    for _ in range(3):
        plan = engine.step()
        assert plan is not None
        assert {row.request_id for row in plan.rows} == {"r"}
    engine.step()
    assert set(engine.admitted) == {"r", "r#1", "r#2"}
    assert [engine.admitted[name].cached_tokens for name in ("r", "r#1", "r#2")] == [0, 39, 39]
    engine.drain()


def test_requests_that_are_not_choices_of_one_prompt_are_refused_together() -> None:
    """They would share blocks: one tenant's request would read another's prompt."""
    engine = stepped_engine()
    for other in (request("b", n_prompt=11), request("b", n_prompt=10, tenant="other")):
        with pytest.raises(ValueError, match="one tenant, adapter and prompt"):
            engine.submit_together([request("a", n_prompt=10), other])
    assert not engine.loop.has_work


def test_each_answer_draws_with_its_own_seed_at_the_same_indexes() -> None:
    engine = stepped_engine()
    engine.submit_together(sequences(3, max_tokens=4))
    engine.drain()
    draws = {
        name: [(row.sampling.seed, row.n_generated) for row in engine.rows_of(name) if row.samples]
        for name in ("r", "r#1", "r#2")
    }
    assert draws == {name: [(7 + (i << 64), index) for index in range(4)] for i, name in enumerate(("r", "r#1", "r#2"))}


def test_the_prefix_is_asked_for_once_not_once_for_each_answer() -> None:
    engine = stepped_engine()
    engine.submit_together(sequences(3, n_prompt=10))
    engine.drain()
    assert engine.counters.prefix_queries.total() == 10


def test_when_the_first_is_aborted_before_the_siblings_start_one_of_them_computes_the_prompt() -> None:
    for caching in (True, False):
        engine = stepped_engine(n_blocks=60, enable_prefix_caching=caching)
        engine.submit_together(sequences(3, n_prompt=40))
        engine.step(2)
        engine.loop.abort("r")
        engine.drain()
        assert set(engine.tokens) == {"r#1", "r#2"}
        assert len(engine.tokens["r#1"]) == 4


def test_when_the_first_ends_before_the_siblings_find_a_seat_they_compute_what_is_not_cached() -> None:
    engine = stepped_engine(max_num_seqs=1)
    engine.submit_together(sequences(3, n_prompt=10))
    engine.drain()
    assert [engine.admitted[name].cached_tokens for name in ("r", "r#1", "r#2")] == [0, 8, 8]
    assert set(engine.finished) == {"r", "r#1", "r#2"}


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("caching", [True, False])
def test_siblings_start_beside_a_first_that_had_to_give_way_before_they_came(mode: str, caching: bool) -> None:
    """An older one grows until the first of the group gives way; when it ends, the whole group comes at once.

    What comes back from host memory is copied there by that very step, so nothing can be forked from it before.
    """
    engine = stepped_engine(n_blocks=9, n_host_slots=20, preemption=mode, enable_prefix_caching=caching, max_num_seqs=2)
    engine.submit(request("old", n_prompt=3, max_tokens=20))
    engine.step()
    engine.submit_together(sequences(3, n_prompt=10, max_tokens=12))
    engine.step_until(lambda: engine.counters.preemptions[mode])
    assert engine.requests["r"].stage in (Stage.PREEMPTED, Stage.SWAPPED)
    assert engine.requests["r#1"].stage is Stage.WAITING
    engine.drain()
    assert set(engine.finished) == {"old", "r", "r#1", "r#2"}


def test_aborting_a_fork_leaves_the_shared_blocks_to_the_others() -> None:
    engine = stepped_engine()
    engine.submit_together(sequences(3, n_prompt=10, max_tokens=12))
    engine.step_until(lambda: len(engine.tokens) == 3)
    for name in ("r", "r#2"):
        engine.loop.abort(name)
        engine.step()
    engine.drain()
    assert engine.tokens["r#1"] == answer_alone(engine.requests["r#1"].prompt, 12, None)


def test_a_failed_step_that_forked_gives_back_what_the_forks_took() -> None:
    engine = stepped_engine()
    engine.submit_together(sequences(3, n_prompt=10, max_tokens=12))
    engine.step()
    engine.engine.runner.fail_next = True
    engine.step()
    assert set(engine.errors) == {"r", "r#1", "r#2"}
    engine.drain()


def test_forks_with_an_adapter_share_its_pin_count_exactly() -> None:
    engine = stepped_engine()
    engine.submit_together(sequences(3, n_prompt=10, max_tokens=5, adapter="red"))
    engine.step_until(lambda: len(engine.admitted) == 3)
    assert [pins for *_, pins, _ in engine.residency.overview()] == [3]
    engine.drain()
    assert [pins for *_, pins, _ in engine.residency.overview()] == [0]


def begun_but_for_the_last(**settings: object) -> SteppedEngine:
    """Two seats: `other` has one, the first of two answers the other, and its sibling waits."""
    engine = stepped_engine(max_num_seqs=2, **settings)
    engine.submit(request("other", max_tokens=50, tenant="other"))
    engine.submit_together(sequences(2, max_tokens=30, adapter="red"))
    engine.step_until(lambda: "r" in engine.tokens)
    assert engine.requests["r#1"].stage is Stage.WAITING
    return engine


def test_an_answer_that_has_begun_is_not_cut_short_because_its_last_part_begins_late() -> None:
    engine = begun_but_for_the_last(ttft_deadline_s=10.0)
    engine.drain()
    assert engine.admitted["r#1"].queue_s > 10.0
    assert [len(engine.tokens[name]) for name in ("r", "r#1")] == [30, 30]
    assert engine.counters.expired == 0


def test_a_sibling_of_a_request_that_never_began_expires_like_any_other() -> None:
    engine = stepped_engine(max_num_seqs=1, ttft_deadline_s=10.0)
    engine.submit(request("other", max_tokens=50, tenant="other"))
    engine.step()
    engine.submit_together(sequences(2))
    engine.drain()
    assert {name: error.code for name, error in engine.errors.items()} == dict.fromkeys(
        ("r", "r#1"), "deadline_exceeded"
    )


def test_an_answer_that_has_begun_on_a_retired_adapter_ends_with_all_its_parts() -> None:
    engine = begun_but_for_the_last()
    engine.loop.retire(AdapterKey("tenant", "red"))
    engine.drain()
    assert engine.errors == {}
    assert [len(engine.tokens[name]) for name in ("r", "r#1")] == [30, 30]
    assert engine.residency.overview() == []


@pytest.mark.parametrize("tenant", ["tenant", "another"])
def test_ids_that_come_again_fork_from_nothing_that_another_submit_left_running(tenant: str) -> None:
    """Ids are the callers': two tenants may choose the same, and one may use its own again."""
    engine = stepped_engine()
    first = sequences(3, n_prompt=7, max_tokens=2)
    first[2].max_tokens = 30
    engine.submit_together(first)
    engine.step_until(lambda: {"r", "r#1"} <= engine.finished.keys() and "r#2" in engine.tokens)
    prompt = tuple(range(11, 18))
    for name in ("r", "r#1"):
        for told in (engine.admitted, engine.tokens, engine.finished):
            del told[name]
    engine.submit_together([request(n, prompt=prompt, max_tokens=3, tenant=tenant) for n in ("r", "r#1")])
    engine.drain()
    assert engine.admitted["r"].cached_tokens == 0
    assert engine.tokens["r"] == engine.tokens["r#1"] == answer_alone(prompt, 3, None)


def test_when_the_first_is_aborted_its_prompt_is_expected_of_the_next() -> None:
    engine = stepped_engine(max_num_seqs=1, max_queued_tokens=60, n_blocks=60)
    engine.submit(request("other", max_tokens=20, tenant="other"))
    engine.step()
    engine.submit_together(sequences(3, n_prompt=40))
    for name in ("r", "r#1"):
        engine.loop.abort(name)
        with pytest.raises(Overloaded, match="prompt tokens wait"):
            engine.submit(request("another", n_prompt=30, tenant="another"))
    engine.loop.abort("r#2")
    engine.submit(request("another", n_prompt=30, tenant="another"))
    engine.drain()


def test_nothing_is_expected_of_the_next_while_there_is_one_to_fork_from() -> None:
    engine = stepped_engine(max_num_seqs=1, max_queued_tokens=60, n_blocks=60)
    engine.submit_together(sequences(3, n_prompt=40))
    engine.step()
    engine.submit(request("another", n_prompt=58, tenant="another"))
    engine.drain()


def test_siblings_that_have_not_begun_expire_together() -> None:
    """The prompt is expected of the first alone, but when that is too late for it, it is for whoever stands in."""
    engine = stepped_engine(max_num_seqs=1, max_model_len=400, n_blocks=200, ttft_deadline_s=20.0)
    engine.submit(request("other", max_tokens=300, tenant="other"))
    engine.step()
    engine.submit_together(sequences(3, n_prompt=300))
    engine.step_until(lambda: engine.errors)
    assert set(engine.errors) == {"r", "r#1", "r#2"}
    engine.loop.abort("other")
    engine.drain()
