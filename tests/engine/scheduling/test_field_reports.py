"""Faults that users of comparable systems reported (A2 to A9 of the field reports), tried on a scripted model.

The scripted runner computes from the KV slots and extents that the plan names, so a wrong block or adapter shows in
the tokens. Those that are about numbers are tried on the real model in tests/engine/equality.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from lorikeet_engine.errors import AdapterRetired, EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.events import Admitted, RequestFailure, TokenOutput
from lorikeet_engine.scheduling.request import Request
from tests.support.scripted_engine_parts import STEP_S, ScriptedEngine, answer_alone, request, scripted_engine

MAX_STEPS = 2000
ONE_ADAPTER = 4  # grains


@dataclass
class Watched:
    """An engine under a virtual clock, and what its requests were told."""

    engine: ScriptedEngine
    now: float = 0.0
    tokens: dict[str, list[int]] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    queued_s: dict[str, float] = field(default_factory=dict)
    errors: dict[str, EngineError] = field(default_factory=dict)

    def submit(self, *requests: Request) -> None:
        for one in requests:
            self.engine.loop.submit([one], self.now)

    def step(self, n: int = 1) -> None:
        loop = self.engine.loop
        for _ in range(n):
            for event in loop.step(self.now):
                match event:
                    case TokenOutput():
                        self.tokens.setdefault(event.request_id, []).append(event.token)
                    case Admitted():
                        self.cached[event.request_id] = event.cached_tokens
                        self.queued_s[event.request_id] = event.queue_s
                    case RequestFailure():
                        self.errors[event.request_id] = event.error
            loop.kv.audit()
            loop.residency.audit()
            self.now += STEP_S

    def drain(self) -> None:
        for _ in range(MAX_STEPS):
            if not self.engine.loop.has_work:
                return
            self.step()
        raise AssertionError(f"there is still work after {MAX_STEPS} steps")

    def known_adapters(self) -> set[str]:
        """Digests of which the engine holds any bytes, or for which it waits."""
        return {key.digest for key, *_ in self.engine.loop.residency.overview()}

    def n_adapters_per_step(self) -> int:
        """The most that met in one step."""
        return max(len({row.adapter for row in plan.rows if row.adapter}) for plan in self.engine.runner.plans)


def alone(requests: Iterable[Request]) -> dict[str, list[int]]:
    """What each request is answered when nothing else runs."""
    return {one.request_id: answer_alone(one.prompt, one.max_tokens, one.adapter) for one in requests}


def assert_nothing_is_in_use(watched: Watched) -> None:
    loop = watched.engine.loop
    for ledger in (loop.kv.ledger, loop.kv.swap_ledger, loop.residency.ledger):
        assert ledger[MemoryState.USED] == ledger[MemoryState.RESERVED] == ledger[MemoryState.IN_FLIGHT] == 0


@pytest.mark.parametrize("n_prompt", [3, 4, 5, 8, 12])
def test_a2_a_prompt_that_fills_its_blocks_is_answered_alike_cold_cached_and_forked(n_prompt: int) -> None:
    watched = Watched(scripted_engine())
    prompt = tuple(range(1, n_prompt + 1))
    cold, cached = (request(name, prompt=prompt) for name in ("cold", "cached"))
    for one in (cold, cached):
        watched.submit(one)
        watched.drain()
    forks = [request(name, prompt=prompt) for name in ("forks", "forks#1")]
    watched.engine.loop.submit(forks, watched.now)
    watched.drain()
    assert watched.tokens == alone([cold, cached, *forks])
    assert (watched.cached["cold"], watched.cached["cached"]) == (0, (n_prompt - 1) // 4 * 4)


def test_a3_identical_prompts_at_once_and_after_their_blocks_were_recycled_get_one_answer() -> None:
    watched = Watched(scripted_engine(n_blocks=13))
    prompt = tuple(range(1, 12))
    together = [request(f"together {i}", prompt=prompt) for i in range(3)]
    watched.submit(*together)
    watched.drain()
    others = [request(f"other {i}", n_prompt=17) for i in range(6)]
    watched.submit(*others)
    watched.drain()
    again = request("again", prompt=prompt)
    watched.submit(again)
    watched.drain()
    assert watched.tokens == alone([*together, *others, again])
    assert watched.cached["again"] == 0
    assert_nothing_is_in_use(watched)


@pytest.mark.parametrize("seed", range(50))
def test_a4_survivors_of_a_batch_go_on_as_if_alone_when_short_requests_leave_it(seed: int) -> None:
    """Sixteen staggered requests of every length, of base and adapters; pools are small in most seeds."""
    rng = random.Random(seed)
    watched = Watched(
        scripted_engine(
            n_blocks=rng.choice([18, 24, 80]),
            n_host_slots=rng.choice([0, 6, 40]),
            arena_grains=rng.choice([4, 8, 16]),
            max_adapters_per_step=rng.choice([1, 2, 4]),
            enable_prefix_caching=rng.random() < 0.7,
            load_delay=rng.randint(1, 4),
        )
    )
    requests = [
        request(
            f"{number}",
            n_prompt=rng.randint(1, 24),
            max_tokens=rng.randint(1, 40),
            adapter=rng.choice(["", "", "a", "b", "c", "d"]),
        )
        for number in range(16)
    ]
    for one in requests:
        watched.submit(one)
        watched.step(rng.randint(0, 4))
    watched.drain()
    assert not watched.errors
    assert watched.tokens == alone(requests)
    assert_nothing_is_in_use(watched)


def test_a5_an_unloaded_adapter_is_gone_at_once_and_its_bytes_come_back() -> None:
    """Room for two; three are used, one is unloaded, and then loaded and unloaded fifty times."""
    watched = Watched(scripted_engine(arena_grains=2 * ONE_ADAPTER))
    loop = watched.engine.loop
    for digest in "abc":
        watched.submit(request(digest, adapter=digest))
        watched.drain()
    loop.retire(AdapterKey("tenant", "b"))
    assert watched.known_adapters() == {"a", "c"}
    for digest in "ac":
        loop.retire(AdapterKey("tenant", digest))
    for turn in range(50):
        one = request(f"turn {turn}", adapter="b")
        watched.submit(one)
        watched.drain()
        assert watched.tokens[one.request_id] == alone([one])[one.request_id]
        loop.retire(AdapterKey("tenant", "b"))
        assert watched.known_adapters() == set()
        for ledger in (loop.residency.ledger, loop.residency.host_ledger):
            assert ledger[MemoryState.FREE] == ledger.capacity


@pytest.mark.parametrize("n_steps", range(14))
def test_a6_aborts_at_any_moment_let_go_of_the_adapter_so_that_unloading_ends(n_steps: int) -> None:
    """Five streams, aborted together: while the adapter loads, while they wait, in prefill, in decode."""
    watched = Watched(scripted_engine(max_num_seqs=3, max_num_batched_tokens=8, load_delay=3))
    streams = [request(f"{i}", n_prompt=18, max_tokens=30, adapter="a") for i in range(5)]
    watched.submit(*streams)
    watched.step(n_steps)
    for one in streams:
        watched.engine.loop.abort(one.request_id)
    assert_unloading_ends(watched)


def test_a6_streams_aborted_one_after_another_do_too() -> None:
    watched = Watched(scripted_engine(max_num_seqs=3, max_num_batched_tokens=8, load_delay=3))
    streams = [request(f"{i}", n_prompt=18, max_tokens=30, adapter="a") for i in range(5)]
    watched.submit(*streams)
    for one in streams:
        watched.engine.loop.abort(one.request_id)
        watched.step(4)
    assert_unloading_ends(watched)


@pytest.mark.parametrize("n_host_slots", [0, 20], ids=["recompute", "swap"])
def test_a6_preempted_streams_too(n_host_slots: int) -> None:
    mode = "swap" if n_host_slots else "recompute"
    watched = Watched(scripted_engine(n_blocks=17, n_host_slots=n_host_slots, preemption=mode))
    streams = [request(f"{i}", n_prompt=8, max_tokens=50, adapter="a") for i in range(5)]
    watched.submit(*streams)
    counters = watched.engine.loop.scheduler.counters
    while not counters.preemptions[mode]:
        watched.step()
    for one in streams:
        watched.engine.loop.abort(one.request_id)
    assert_unloading_ends(watched)


def assert_unloading_ends(watched: Watched) -> None:
    """Within five steps nothing of the adapter is left, and nothing of the requests."""
    loop = watched.engine.loop
    assert not loop.has_work
    n_plans = len(watched.engine.runner.plans)
    loop.retire(AdapterKey("tenant", "a"))
    watched.step(5)
    assert watched.known_adapters() == set()
    assert_nothing_is_in_use(watched)
    assert loop.kv.ledger[MemoryState.FREE] == loop.kv.ledger.capacity
    assert not any(plan.rows for plan in watched.engine.runner.plans[n_plans:])
    assert not watched.errors


def test_a7_what_runs_on_an_unloaded_adapter_ends_exactly_and_nothing_new_starts() -> None:
    watched = Watched(scripted_engine())
    loop, key = watched.engine.loop, AdapterKey("tenant", "old")
    running = request("running", max_tokens=20, adapter="old")
    watched.submit(running)
    while len(watched.tokens.get("running", ())) < 5:
        watched.step()
    loop.retire(key)
    with pytest.raises(AdapterRetired):
        watched.submit(request("late", adapter="old"))
    replaced = request("replaced", max_tokens=4, adapter="new")
    watched.submit(replaced)
    watched.drain()
    assert watched.tokens == alone([running, replaced])
    assert watched.known_adapters() == {"new"}


def test_a7_a_request_that_waits_for_an_unloaded_adapter_is_told_so() -> None:
    """Its seat was taken; it must not run later, nor be answered by the base model."""
    watched = Watched(scripted_engine(max_num_seqs=1))
    first, waiting = (request(name, max_tokens=12, adapter="a") for name in ("first", "waiting"))
    watched.submit(first, waiting)
    watched.step(4)
    watched.engine.loop.retire(AdapterKey("tenant", "a"))
    watched.drain()
    assert watched.tokens == alone([first])
    assert isinstance(watched.errors["waiting"], AdapterRetired)


def test_a8_more_adapters_at_once_than_a_step_may_hold_are_all_answered() -> None:
    """Four adapters a step; four, the base model and a fifth at the same instant, twenty times."""
    watched = Watched(scripted_engine(arena_grains=5 * ONE_ADAPTER, max_adapters_per_step=4))
    requests: list[Request] = []
    for turn in range(20):
        together = [request(f"{turn} {digest}", adapter=digest) for digest in ("a", "b", "c", "d", "", "e")]
        random.Random(turn).shuffle(together)
        watched.submit(*together)
        watched.drain()
        requests += together
    assert not watched.errors
    assert watched.tokens == alone(requests)
    assert watched.n_adapters_per_step() == 4


@pytest.mark.parametrize("tenant", ["tenant", "other tenant"])
def test_a9_a_rare_adapter_gets_its_turn_beside_a_popular_one(tenant: str) -> None:
    """One place in the arena, and twice as many requests for A as can be served; one for B after a second.

    B starts at the latest when its patience (`barrier_after_s`) is over, the longest answer on A has ended, and its
    adapter has been read and placed.
    """
    patience, longest_answer, load = 3, 8, 2
    bound = patience + longest_answer + load + 2
    watched = Watched(
        scripted_engine(
            arena_grains=ONE_ADAPTER, max_num_seqs=2, load_delay=load, max_queued_requests=400, barrier_after_s=patience
        )
    )
    rare = request("rare", max_tokens=longest_answer, adapter="b", tenant=tenant)
    requests = [rare]
    for second in range(60):
        if second % 2 == 0:
            requests.append(request(f"popular {second}", max_tokens=longest_answer, adapter="a"))
            watched.submit(requests[-1])
        if second == 1:
            watched.submit(rare)
        watched.step()
        assert "rare" in watched.tokens or second <= bound
    watched.drain()
    assert watched.tokens == alone(requests)
    waited_s = watched.queued_s["rare"]
    assert patience <= waited_s <= bound
    assert watched.engine.loop.scheduler.counters.longest_adapter_wait_s >= waited_s - STEP_S
