"""Adapters on their way to the device: extents never overlap, pinned ones stay, the ledger equals a recount."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lorikeet_engine.errors import AdapterUnavailable
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapter_arena import AdapterArena
from lorikeet_engine.memory.adapter_residency import AdapterResidency, Placement, Residency
from lorikeet_engine.memory.ledger import MemoryState

GRAIN, N_GRAINS = 32, 20
KEYS = [AdapterKey("tenant", f"digest{i}") for i in range(6)]
SIZES = dict(zip(KEYS, (3, 5, 7, 11, 2, 9), strict=True))


class ResidencyMachine(RuleBasedStateMachine):
    """Random wants, loads, placements and pins; the arena's bytes are modelled as a list of owners a grain."""

    def __init__(self) -> None:
        super().__init__()
        self.residency = AdapterResidency(n_grains=N_GRAINS, grain_bytes=GRAIN, max_loading=6)
        self.memory: list[AdapterKey | None] = [None] * N_GRAINS
        self.pins = dict.fromkeys(KEYS, 0)

    @rule(key=st.sampled_from(KEYS))
    def want(self, key: AdapterKey) -> None:
        unknown = self.residency.state(key) is None
        self.residency.want(key)
        assert (key in self.residency.take_loads()) == unknown

    @rule(key=st.sampled_from(KEYS), works=st.booleans())
    def finish_load(self, key: AdapterKey, works: bool) -> None:
        if self.residency.state(key) is Residency.LOADING:
            if works:
                self.residency.on_loaded(key, SIZES[key])
            else:
                self.residency.on_failed(key)

    @rule(key=st.sampled_from(KEYS), pin_early=st.booleans())
    def place(self, key: AdapterKey, pin_early: bool) -> None:
        if self.residency.state(key) is not Residency.HOST:
            return
        placement = self.residency.place(key)
        pinned = sum(SIZES[k] for k in KEYS if self.pins[k])
        assert (placement is None) == (pinned + SIZES[key] > N_GRAINS)
        if placement:
            if pin_early:
                self.pin(key)
            self.carry_out(placement)
            self.residency.on_placed(key)

    def carry_out(self, placement: Placement) -> None:
        for move in placement.moves:
            assert set(self.memory[move.source : move.source + move.n_grains]) == {move.key}
            self.memory[move.target : move.target + move.n_grains] = [move.key] * move.n_grains
        end = placement.base + SIZES[placement.key]
        self.memory[placement.base : end] = [placement.key] * SIZES[placement.key]

    @rule(key=st.sampled_from(KEYS))
    def pin(self, key: AdapterKey) -> None:
        if self.residency.state(key) in (Residency.PLACING, Residency.RESIDENT):
            self.residency.pin(key)
            self.pins[key] += 1

    @rule(key=st.sampled_from(KEYS))
    def unpin(self, key: AdapterKey) -> None:
        if self.pins[key]:
            self.residency.unpin(key)
            self.pins[key] -= 1

    @rule(key=st.sampled_from(KEYS))
    def forget(self, key: AdapterKey) -> None:
        if self.residency.state(key) is Residency.HOST:
            self.residency.forget(key)

    @invariant()
    def pinned_adapters_keep_their_bytes(self) -> None:
        for key, n_pins in self.pins.items():
            if n_pins:
                base = self.residency.base(key)
                assert set(self.memory[base : base + SIZES[key]]) == {key}

    @invariant()
    def ledger_equals_a_recount_of_the_extents(self) -> None:
        recount = self.residency.recount()
        assert {state: self.residency.ledger[state] for state in MemoryState} == recount
        assert recount[MemoryState.USED] == sum(SIZES[k] for k, n in self.pins.items() if n) * GRAIN


TestResidencyMachine = ResidencyMachine.TestCase
TestResidencyMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def resident(residency: AdapterResidency, key: AdapterKey, n_grains: int) -> Placement | None:
    residency.want(key)
    residency.on_loaded(key, n_grains)
    placement = residency.place(key)
    if placement:
        residency.on_placed(key)
    return placement


def test_the_least_recently_used_idle_adapter_makes_room() -> None:
    residency = AdapterResidency(n_grains=10, grain_bytes=1, max_loading=6)
    for key in KEYS[:2]:
        resident(residency, key, 5)
    residency.pin(KEYS[0])
    residency.unpin(KEYS[0])
    resident(residency, KEYS[2], 5)
    assert residency.state(KEYS[0]) is Residency.RESIDENT
    assert residency.state(KEYS[1]) is None


def test_a_pinned_adapter_is_never_evicted_and_nothing_is_evicted_in_vain() -> None:
    residency = AdapterResidency(n_grains=10, grain_bytes=1, max_loading=6)
    for key in KEYS[:2]:
        resident(residency, key, 5)
    residency.pin(KEYS[0])
    residency.want(KEYS[2])
    residency.on_loaded(KEYS[2], 6)
    assert residency.place(KEYS[2]) is None
    assert residency.state(KEYS[1]) is Residency.RESIDENT


def test_fragmented_room_is_compacted_by_moves_in_ascending_order() -> None:
    residency = AdapterResidency(n_grains=12, grain_bytes=1, max_loading=6)
    for key in KEYS[:3]:
        resident(residency, key, 4)
    residency.pin(KEYS[1])
    placement = resident(residency, KEYS[3], 8)
    assert placement is not None
    assert [(m.source, m.target, m.n_grains) for m in placement.moves] == [(4, 0, 4)]
    assert placement.base == 4


def test_an_adapter_larger_than_the_arena_is_refused_and_forgotten() -> None:
    residency = AdapterResidency(n_grains=10, grain_bytes=16, max_loading=6)
    residency.want(KEYS[0])
    with pytest.raises(AdapterUnavailable, match="176 bytes, the arena holds 160"):
        residency.on_loaded(KEYS[0], 11)
    assert residency.state(KEYS[0]) is None


def test_only_so_many_are_on_their_way_at_once() -> None:
    residency = AdapterResidency(n_grains=10, grain_bytes=1, max_loading=2)
    residency.want(KEYS[0])
    assert residency.has_room_to_load
    residency.want(KEYS[1])
    residency.on_loaded(KEYS[0], 4)
    assert not residency.has_room_to_load
    residency.place(KEYS[0])
    assert residency.has_room_to_load


def test_two_tenants_with_the_same_file_hold_two_extents() -> None:
    residency = AdapterResidency(n_grains=10, grain_bytes=1, max_loading=6)
    anna, ben = AdapterKey("anna", "same"), AdapterKey("ben", "same")
    resident(residency, anna, 4)
    resident(residency, ben, 4)
    assert residency.base(anna) != residency.base(ben)
    assert residency.snapshot().by_tenant == {"anna": 4, "ben": 4}


def test_best_fit_takes_the_smallest_gap_that_holds() -> None:
    arena = AdapterArena(20)
    for key, n_grains in zip(KEYS[:4], (6, 2, 3, 9), strict=True):
        arena.allocate(key, n_grains)
    arena.free(KEYS[0])
    arena.free(KEYS[2])
    assert arena.allocate(KEYS[4], 3) == 8
    assert arena.allocate(KEYS[5], 3) == 0


def test_unpinning_more_often_than_pinning_is_caught() -> None:
    residency = AdapterResidency(n_grains=10, grain_bytes=1, max_loading=6)
    resident(residency, KEYS[0], 4)
    with pytest.raises(ValueError, match="more often"):
        residency.unpin(KEYS[0])
