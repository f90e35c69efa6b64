"""Extents in the arena: never overlapping, the best gap taken, gaps joined by moving as little as possible."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.arena import AdapterArena, Extent

N_GRAINS = 24
KEYS = [AdapterKey("tenant", f"digest{i}") for i in range(8)]


def gaps_of(memory: list[AdapterKey | None]) -> list[Extent]:
    """The runs of grains that nobody owns."""
    gaps, start = [], None
    for grain, owner in enumerate([*memory, KEYS[0]]):
        if owner is None and start is None:
            start = grain
        if owner is not None and start is not None:
            gaps.append(Extent(start, grain - start))
            start = None
    return gaps


def fewest_grains_to_move(memory: list[AdapterKey | None], n_grains: int) -> int:
    """Over all runs of neighbouring gaps that are large enough together, the least that lies between them."""
    gaps = gaps_of(memory)
    runs = [gaps[i:j] for i in range(len(gaps)) for j in range(i + 1, len(gaps) + 1)]
    between = [
        run[-1].end - run[0].base - sum(gap.n_grains for gap in run)
        for run in runs
        if sum(gap.n_grains for gap in run) >= n_grains
    ]
    return min(between)


class ArenaMachine(RuleBasedStateMachine):
    """Random allocations, returns and joins; the arena is modelled as a list of owners a grain."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = AdapterArena(N_GRAINS)
        self.memory: list[AdapterKey | None] = [None] * N_GRAINS

    @rule(key=st.sampled_from(KEYS), n_grains=st.integers(1, 9))
    def allocate(self, key: AdapterKey, n_grains: int) -> None:
        if key in self.memory:
            return
        fitting = sorted((gap.n_grains, gap.base) for gap in gaps_of(self.memory) if gap.n_grains >= n_grains)
        base = self.arena.allocate(key, n_grains)
        assert base == (fitting[0][1] if fitting else None)
        if base is not None:
            self.memory[base : base + n_grains] = [key] * n_grains

    @rule(key=st.sampled_from(KEYS))
    def free(self, key: AdapterKey) -> None:
        if key in self.memory:
            assert self.arena.free(key) == self.memory.count(key)
            self.memory = [None if owner == key else owner for owner in self.memory]

    @rule(n_grains=st.integers(1, N_GRAINS))
    def join_gaps(self, n_grains: int) -> None:
        if n_grains > self.memory.count(None):
            return
        fewest = fewest_grains_to_move(self.memory, n_grains)
        moves = self.arena.join_gaps(n_grains)
        assert sum(move.n_grains for move in moves) == fewest
        assert all(a.source < b.source for a, b in pairwise(moves))
        for move in moves:
            assert move.target < move.source
            assert set(self.memory[move.source : move.source + move.n_grains]) == {move.key}
            self.memory[move.source : move.source + move.n_grains] = [None] * move.n_grains
            assert set(self.memory[move.target : move.target + move.n_grains]) == {None}
            self.memory[move.target : move.target + move.n_grains] = [move.key] * move.n_grains
        assert self.arena.largest_gap >= n_grains

    @invariant()
    def the_arena_says_what_lies_there(self) -> None:
        assert self.arena.gaps() == gaps_of(self.memory)
        assert self.arena.n_free == self.memory.count(None)
        assert self.arena.largest_gap == max((gap.n_grains for gap in gaps_of(self.memory)), default=0)
        extents = {key: Extent(self.memory.index(key), self.memory.count(key)) for key in KEYS if key in self.memory}
        assert self.arena.extents() == extents
        assert all(self.arena.base(key) == extent.base for key, extent in extents.items())


TestArenaMachine = ArenaMachine.TestCase
TestArenaMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_best_fit_takes_the_smallest_gap_that_holds() -> None:
    arena = AdapterArena(20)
    for key, n_grains in zip(KEYS[:4], (6, 2, 3, 9), strict=True):
        arena.allocate(key, n_grains)
    arena.free(KEYS[0])
    arena.free(KEYS[2])
    assert arena.allocate(KEYS[4], 3) == 8
    assert arena.allocate(KEYS[5], 3) == 0


def test_extents_outside_the_joined_run_stay_where_they_are() -> None:
    arena = AdapterArena(16)
    for key in KEYS[:4]:
        arena.allocate(key, 4)
    arena.free(KEYS[0])
    arena.free(KEYS[2])
    moves = arena.join_gaps(6)
    assert [(move.key, move.source, move.target, move.n_grains) for move in moves] == [(KEYS[1], 4, 0, 4)]
    assert arena.base(KEYS[3]) == 12
    assert arena.gaps() == [Extent(4, 8)]


def test_misuse_is_caught() -> None:
    arena = AdapterArena(8)
    arena.allocate(KEYS[0], 6)
    with pytest.raises(ValueError, match="already"):
        arena.allocate(KEYS[0], 1)
    with pytest.raises(ValueError, match="holds nothing"):
        arena.allocate(KEYS[1], 0)
    with pytest.raises(ValueError, match="3 grains are asked for, 2 are free"):
        arena.join_gaps(3)
    arena.free(KEYS[0])
    with pytest.raises(KeyError):
        arena.free(KEYS[0])
