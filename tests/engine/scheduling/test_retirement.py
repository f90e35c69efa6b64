"""Versions that come and go while requests run: nobody is answered by another one, and nothing of them is left.

The scripted model's tokens depend on the adapter whose extent the plan names, so a mix-up shows in the answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from lorikeet_engine.errors import AdapterRetired
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.ledger import MemoryState, Owner
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

PROMPT = tuple(range(1, 18))
OVERLAPS = pytest.mark.parametrize("overlaps", [False, True], ids=["alone", "overlapped"])
FORCE = pytest.mark.parametrize("force", [False, True], ids=["gently", "by force"])


def ask(engine: SteppedEngine, name: str, adapter: str, *, tenant: str = "tenant") -> int:
    """Run one request on its own; the answer is how many tokens of its prompt were cached."""
    engine.submit(request(name, prompt=PROMPT, adapter=adapter, tenant=tenant))
    engine.drain()
    return engine.admitted[name].cached_tokens


def owners_of_prefixes(engine: SteppedEngine) -> set[Owner]:
    return set(engine.kv.ledger.held_by_owner())


@FORCE
def test_a1_a_new_version_under_the_old_name_shares_no_prefix_and_the_old_one_finds_its_own_again(force: bool) -> None:
    engine = stepped_engine()
    assert [ask(engine, name, version) for name, version in (("old", "v1"), ("new", "v2"), ("again", "v2"))] == [
        0,
        0,
        16,
    ]
    assert ask(engine, "rolled back", "v1") == 16
    engine.loop.retire(AdapterKey("tenant", "v1"), force=force)
    assert [ask(engine, name, version) for name, version in (("kept", "v2"), ("anew", "v1"))] == [16, 0]


@FORCE
def test_retiring_purges_the_prefixes_of_that_adapter_of_that_tenant_and_of_nobody_else(force: bool) -> None:
    engine = stepped_engine(n_blocks=65)
    owners = {Owner(tenant, adapter) for tenant in ("anna", "ben") for adapter in ("red", "green", "")}
    for owner in owners:
        ask(engine, f"{owner}", owner.adapter, tenant=owner.tenant)
    assert owners_of_prefixes(engine) == owners
    blocks = dict(engine.kv.ledger.held_by_owner())
    engine.loop.retire(AdapterKey("anna", "red"), force=force)
    gone = Owner("anna", "red")
    assert engine.kv.ledger.held_by_owner() == {owner: held for owner, held in blocks.items() if owner != gone}
    for owner in owners:
        n_cached = ask(engine, f"{owner} again", owner.adapter, tenant=owner.tenant)
        assert n_cached == (0 if owner == gone else 16)


@OVERLAPS
def test_force_ends_the_requests_of_that_adapter_of_that_tenant_and_of_nobody_else(overlaps: bool) -> None:
    engine = stepped_engine(overlaps=overlaps, max_num_seqs=5, n_blocks=65)
    for tenant in ("anna", "ben"):
        for adapter in ("red", "green", ""):
            for turn in range(2):
                engine.submit(
                    request(f"{tenant} {adapter} {turn}", max_tokens=12, adapter=adapter, tenant=tenant, n_prompt=9)
                )
    engine.step_until(lambda: len(engine.tokens) >= 4)
    engine.loop.retire(AdapterKey("anna", "red"), force=True)
    engine.step(2)
    assert set(engine.errors) == {"anna red 0", "anna red 1"}
    assert Owner("anna", "red") not in owners_of_prefixes(engine)
    engine.drain()
    assert set(engine.finished) == set(engine.requests) - set(engine.errors)
    assert {error.code for error in engine.errors.values()} == {"adapter_retired"}


@OVERLAPS
@pytest.mark.parametrize("n_steps", range(14))
def test_a6_unloading_by_force_ends_within_two_steps_at_any_moment(n_steps: int, overlaps: bool) -> None:
    """Five streams on it: while it loads, while they wait, in prefill, in decode; three of them are aborted first."""
    engine = stepped_engine(overlaps=overlaps, max_num_seqs=3, max_num_batched_tokens=8, load_delay=3)
    names = [str(number) for number in range(5)]
    engine.submit(*[request(name, n_prompt=18, max_tokens=30, adapter="a") for name in names])
    engine.step(n_steps)
    for name in names[::2]:
        engine.loop.abort(name)
    engine.loop.retire(AdapterKey("tenant", "a"), force=True)
    engine.step(2)
    assert set(engine.errors) == set(names[1::2])
    assert not engine.loop.has_work
    engine.step(4)  # a load that had begun ends by itself
    assert engine.residency.overview() == []
    for ledger in (engine.kv.ledger, engine.residency.ledger, engine.residency.host_ledger):
        assert ledger[MemoryState.FREE] == ledger.capacity


def test_a5_fifty_rounds_of_warming_and_unloading_by_force_end_where_they_began() -> None:
    engine, key = stepped_engine(arena_grains=8, host_grains=12), AdapterKey("tenant", "b")
    for turn in range(50):
        engine.loop.warm(key, engine.now)
        engine.step_until(engine.loop.take_warmed)
        engine.submit(request(f"{turn}", adapter="b", max_tokens=9))
        engine.step(3)
        engine.loop.retire(key, force=True)
        engine.step(2)
        assert isinstance(engine.errors[f"{turn}"], AdapterRetired)
        assert (engine.residency.overview(), dict(engine.loop._images)) == ([], {})
        for ledger in (engine.kv.ledger, engine.residency.ledger, engine.residency.host_ledger):
            assert ledger[MemoryState.FREE] == ledger.capacity


@dataclass
class Storm:
    """Four names whose versions are replaced, retired, ended by force and restored while requests run.

    Does what the platform does: a version gets requests only while it is in service, a new one is warmed before the
    name moves to it.
    """

    engine: SteppedEngine
    rng: random.Random
    live: dict[str, int] = field(default_factory=lambda: dict.fromkeys("abcd", 1))
    upcoming: dict[AdapterKey, str] = field(default_factory=dict)
    retired: set[AdapterKey] = field(default_factory=set)
    forced: set[AdapterKey] = field(default_factory=set)
    n_replaced: int = 0

    def key(self, name: str) -> AdapterKey:
        return AdapterKey("tenant", f"{name}{self.live[name]}")

    def turn(self, number: int) -> None:
        rng, name = self.rng, self.rng.choice("abcd")
        move = rng.random()
        if move < 0.5:
            n_prompt, max_tokens = rng.randint(1, 20), rng.randint(1, 24)
            one = request(f"r{number}", n_prompt=n_prompt, max_tokens=max_tokens, adapter=self.key(name).digest)
            self.engine.submit(one)
        elif move < 0.6:
            following = AdapterKey("tenant", f"{name}{self.live[name] + 1}")
            self.upcoming[following] = name
            self.engine.loop.warm(following, self.engine.now)
        elif move < 0.65 and self.retired:
            again = rng.choice(sorted(self.retired))
            self.retired.discard(again)
            self.upcoming[again] = ""
            self.engine.loop.warm(again, self.engine.now)
        elif move < 0.7 and self.engine.requests:
            self.engine.loop.abort(rng.choice(list(self.engine.requests)))
        elif move < 0.75:
            self.engine.engine.runner.fail_next = rng.random() < 0.3
        self.engine.step(rng.randint(1, 3))
        self.take_warmed()

    def take_warmed(self) -> None:
        for key, error, _ in self.engine.loop.take_warmed():
            assert error is None
            name = self.upcoming.pop(key)
            if not name:
                self.retire(key)
            elif key.digest == f"{name}{self.live[name] + 1}":
                old = self.key(name)
                self.live[name] += 1
                self.n_replaced += 1
                self.retire(old)

    def retire(self, key: AdapterKey) -> None:
        force = self.rng.random() < 0.4
        self.retired.add(key)
        if force:
            self.forced.add(key)
        self.engine.loop.retire(key, force=force)


@OVERLAPS
@pytest.mark.parametrize("seed", range(12))
def test_a7_nobody_is_answered_by_another_version_in_a_storm_of_replacements(seed: int, overlaps: bool) -> None:
    """An arena for two adapters; `drain` compares every answer with that of its own version alone."""
    rng = random.Random(seed)
    engine = stepped_engine(
        overlaps=overlaps,
        arena_grains=8,
        host_grains=rng.choice([12, 16, 40]),
        n_blocks=rng.choice([24, 33, 65]),
        n_host_slots=rng.choice([0, 20]),
        load_delay=rng.randint(1, 4),
        max_adapters_per_step=2,
        barrier_after_s=12.0,
    )
    storm = Storm(engine, rng)
    for number in range(200):
        storm.turn(number)
    engine.drain()
    storm.take_warmed()
    engine.step(6)
    assert storm.n_replaced > 5
    for name, error in engine.errors.items():
        key = engine.requests[name].adapter
        assert error.code in ("adapter_retired", "engine_failure")
        if error.code == "adapter_retired":
            assert key in storm.retired | storm.forced | set(storm.upcoming)
        if name in engine.tokens and error.code == "adapter_retired":
            assert key in storm.forced, "what had begun was to end as it began"
    assert len(engine.finished) > 40
    left = {key for key, *_ in engine.residency.overview()}
    assert not left & storm.retired
    assert not {owner.adapter for owner in owners_of_prefixes(engine)} & {key.digest for key in storm.retired}
    engine.assert_all_is_released()
