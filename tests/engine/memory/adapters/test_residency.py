"""Adapters whatever happens to them: pinned ones stay, holds hold, retiring ends, and both ledgers add up."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lorikeet_engine.errors import AdapterRetired, AdapterUnavailable, EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.host_cache import LEASE_MIN_S
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Placement, Residency
from lorikeet_engine.memory.ledger import MemoryState

GRAIN, N_GRAINS, HOST_GRAINS, MAX_LOADING = 32, 20, 30, 3
KEYS = [AdapterKey(f"tenant{i % 3}", f"digest{i}") for i in range(8)]
SIZES = dict(zip(KEYS, (3, 5, 7, 11, 2, 9, 4, 21), strict=True))
TOO_LARGE = KEYS[7]
IN_ARENA = (Residency.PLACING, Residency.RESIDENT, Residency.DRAINING)


class ResidencyMachine(RuleBasedStateMachine):
    """Random requests, loads, placements, holds and retirements, with a scheduler's manners.

    The arena's bytes are modelled as a list of owners a grain, host memory as the set of images the loop would keep.
    Placements are carried out later and in order, as a plan's are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.residency = AdapterResidency(
            n_grains=N_GRAINS, grain_bytes=GRAIN, host_bytes=HOST_GRAINS * GRAIN, max_loading=MAX_LOADING
        )
        self.memory: list[AdapterKey | None] = [None] * N_GRAINS
        self.images: set[AdapterKey] = set()
        self.loading: set[AdapterKey] = set()
        self.planned: list[Placement] = []
        self.pins = dict.fromkeys(KEYS, 0)
        self.waiting = dict.fromkeys(KEYS, 0)
        self.wanted_s = dict.fromkeys(KEYS, 0.0)  # since when, at the latest, the image is waited for
        self.leased: dict[AdapterKey, float] = {}  # since when
        self.retired: set[AdapterKey] = set()
        self.draining: set[AdapterKey] = set()
        self.failed: set[AdapterKey] = set()  # and not wanted since
        self.held: tuple[AdapterKey, int] | None = None
        self.promoted: AdapterKey | None = None
        self.now = 0.0

    @rule(key=st.sampled_from(KEYS))
    def want(self, key: AdapterKey) -> None:
        self.residency.want(key, self.now)
        self.waiting[key] += 1
        self.wanted_s[key] = self.now
        self.failed.discard(key)

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """A waiting request goes away, the last one for its adapter too."""
        key = data.draw(st.sampled_from([key for key in KEYS if self.waiting[key]]))
        for _ in range(data.draw(st.integers(1, self.waiting[key]))):
            self.unwant(key)

    def unwant(self, key: AdapterKey) -> None:
        self.waiting[key] -= 1
        before = self.in_arena()
        self.residency.unwant(key)
        self.note_evicted(before - self.in_arena())

    @rule(key=st.sampled_from(KEYS[:7]), ends=st.booleans())
    def serve(self, key: AdapterKey, ends: bool) -> None:
        """A request goes all the way, as far as there is room."""
        self.want(key)
        self.obey()
        if key in self.loading:
            self.take_in(key, works=True)
        self.obey()
        if self.residency.state(key) is Residency.HOST:
            self.place(key, starts=True)
        else:
            self.start(key)
        self.obey()
        self.carry_out()
        if ends:
            self.end(key, is_preempted=False)

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data(), seconds=st.sampled_from((0.1, 50.0)))
    def promote(self, data: st.DataObject, seconds: float) -> None:
        key = data.draw(st.sampled_from([key for key in KEYS if self.waiting[key]]))
        self.now += seconds
        self.promoted = key
        self.residency.promote(key, self.now)

    @precondition(lambda self: self.loading)
    @rule(data=st.data(), works=st.sampled_from((True, True, True, False)))
    def finish_load(self, data: st.DataObject, works: bool) -> None:
        self.take_in(data.draw(st.sampled_from(sorted(self.loading))), works=works)

    def take_in(self, key: AdapterKey, *, works: bool) -> None:
        self.loading.remove(key)
        self.wanted_s[key] = self.now
        if not works:
            self.note_failure(key, self.residency.on_failed(key, AdapterUnavailable("scripted"), self.now))
            return
        self.images.add(key)
        if key == TOO_LARGE:
            with pytest.raises(AdapterUnavailable) as told:
                self.residency.on_loaded(key, SIZES[key], self.now)
            self.note_failure(key, told.value)
        else:
            self.residency.on_loaded(key, SIZES[key], self.now)

    def note_failure(self, key: AdapterKey, error: EngineError) -> None:
        assert error.retry_after_s
        self.failed.add(key)

    @rule(key=st.sampled_from(KEYS), starts=st.booleans())
    def place(self, key: AdapterKey, starts: bool) -> None:
        if self.residency.state(key) is not Residency.HOST:
            return
        self.drop_hold_of_a_forgotten_adapter()  # inside of `serve` an image may have been dropped for another
        held_by_others = self.n_held() if self.held and self.held[0] != key else 0
        fits = SIZES[key] <= N_GRAINS - self.n_busy() - held_by_others
        assert (self.residency.n_bytes_missing(key) == 0) == fits
        before, placed_before = self.residency.overview(), self.in_arena()
        reserved_before = self.residency.ledger[MemoryState.RESERVED]
        placement = self.residency.place(key, self.now)
        assert (placement is not None) == fits
        if placement is None:
            assert self.residency.overview() == before, "something happened in vain"
            return
        self.planned.append(placement)
        if self.held and self.held[0] == key:
            self.held = None
        n_left = self.residency.ledger[MemoryState.FREE] // GRAIN
        if self.held:  # a hold that ended with this, because its image went, left room that was not evicted for
            n_left -= max(0, reserved_before - self.residency.ledger[MemoryState.RESERVED]) // GRAIN
        gone = placed_before - self.in_arena()
        assert all(SIZES[victim] > n_left for victim in gone), "one more than needed was evicted"
        assert set(self.residency.take_evicted()) >= gone
        self.note_evicted(gone)
        if starts and self.waiting[key]:
            self.start(key)

    @rule(key=st.sampled_from(KEYS))
    def start(self, key: AdapterKey) -> None:
        """A waiting request starts, if its adapter has its place."""
        if self.residency.state(key) in (Residency.PLACING, Residency.RESIDENT) and self.waiting[key]:
            self.residency.pin(key, self.now)
            self.pins[key] += 1
            self.unwant(key)
        elif self.residency.state(key) is Residency.DRAINING:
            with pytest.raises(ValueError, match="nothing can start"):
                self.residency.pin(key, self.now)

    @precondition(lambda self: any(self.pins.values()))
    @rule(key=st.sampled_from(KEYS), is_preempted=st.booleans())
    def end(self, key: AdapterKey, is_preempted: bool) -> None:
        """A running request ends, or goes back into the queue."""
        if not self.pins[key]:
            return
        if is_preempted:
            self.want(key)
        before = self.in_arena()
        self.pins[key] -= 1
        self.residency.unpin(key)
        self.note_evicted(before - self.in_arena())

    @precondition(lambda self: self.planned)
    @rule()
    def carry_out(self) -> None:
        """The planned step is done."""
        planned, self.planned = self.planned, []
        for placement in planned:
            assert placement.key in self.images, "the image of a planned placement was dropped"
            for move in placement.moves:
                assert set(self.memory[move.source : move.source + move.n_grains]) == {move.key}
                self.memory[move.target : move.target + move.n_grains] = [move.key] * move.n_grains
            end = placement.base + SIZES[placement.key]
            self.memory[placement.base : end] = [placement.key] * SIZES[placement.key]
        before = self.in_arena()
        for placement in planned:
            self.residency.on_placed(placement.key)
        self.note_evicted(before - self.in_arena())

    @precondition(lambda self: self.in_arena())
    @rule(key=st.sampled_from(KEYS))
    def drain(self, key: AdapterKey) -> None:
        if self.residency.state(key) in IN_ARENA:
            self.residency.drain(key)
            self.draining.add(key)

    @precondition(lambda self: self.draining)
    @rule()
    def undrain_all(self) -> None:
        self.residency.undrain_all()
        self.draining.clear()

    @precondition(lambda self: self.holdable())
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.holdable()))
        before = self.in_arena()
        self.residency.hold(key, SIZES[key])
        self.held = (key, SIZES[key])
        self.note_evicted(before - self.in_arena())

    def holdable(self) -> list[AdapterKey]:
        return [key for key in KEYS if self.waiting[key] and self.residency.state(key) is Residency.HOST]

    @precondition(lambda self: self.held)
    @rule()
    def release_hold(self) -> None:
        self.residency.release_hold()
        self.held = None

    @precondition(lambda self: self.in_arena())
    @rule(data=st.data())
    def retire_in_arena(self, data: st.DataObject) -> None:
        self.retire(data.draw(st.sampled_from(sorted(self.in_arena()))))

    @rule(key=st.sampled_from(KEYS))
    def retire(self, key: AdapterKey) -> None:
        known = self.residency.state(key) is not None or self.waiting[key] > 0
        before = self.in_arena()
        gone = self.residency.retire(key)
        self.note_evicted(before - self.in_arena())
        self.retired.add(key)
        assert gone == (not self.is_needed(key) or not known)
        if not known:
            self.retired.discard(key)

    @rule(key=st.sampled_from(KEYS))
    def restore(self, key: AdapterKey) -> None:
        self.residency.restore(key)
        self.retired.discard(key)

    @rule(seconds=st.sampled_from((0.01, 0.5, 3.0)))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds

    def is_needed(self, key: AdapterKey) -> bool:
        busy = key in self.loading or self.residency.state(key) is Residency.LOADING
        return bool(self.pins[key] or self.waiting[key] or busy or key in {p.key for p in self.planned})

    def in_arena(self) -> set[AdapterKey]:
        return {key for key in KEYS if self.residency.state(key) in IN_ARENA}

    def n_busy(self) -> int:
        """Grains of adapters that cannot leave: pinned, or on their way in."""
        planned = {placement.key for placement in self.planned}
        return sum(SIZES[key] for key in KEYS if self.pins[key] or key in planned)

    def n_held(self) -> int:
        return min(self.held[1], N_GRAINS - self.n_busy()) if self.held else 0

    def drop_hold_of_a_forgotten_adapter(self) -> None:
        if self.held and self.held[0] not in {row[0] for row in self.residency.overview()}:
            self.held = None

    def note_evicted(self, keys: set[AdapterKey]) -> None:
        for key in keys:
            assert not self.pins[key]
            self.wanted_s[key] = self.now
            self.draining.discard(key)

    def obey(self) -> None:
        """Start the loads and free the images that the residency names, as the loop does after every call."""
        loads = self.residency.take_loads()
        assert not set(loads) & self.loading, "a load was started twice"
        self.loading |= set(loads)
        for key in self.residency.take_dropped():
            self.images.remove(key)
            if key in self.leased and self.waiting[key]:
                assert self.leased[key] + LEASE_MIN_S <= self.now, "a lease was broken before its time"
                assert self.promoted is not None
        leased = {key for key in KEYS if self.waiting[key] and self.residency.state(key) is Residency.HOST}
        self.leased = {key: self.leased.get(key, self.wanted_s[key]) for key in leased}  # never prolonged

    @invariant()
    def loads_are_bounded(self) -> None:
        self.obey()
        assert len(self.loading) <= MAX_LOADING
        assert {key for key in KEYS if self.residency.state(key) is Residency.LOADING} == self.loading

    @invariant()
    def images_in_need_are_kept_within_host_memory(self) -> None:
        self.obey()
        planned = {placement.key for placement in self.planned}
        assert {key for key in KEYS if self.residency.state(key) is Residency.HOST} | planned <= self.images
        assert sum(SIZES[key] for key in self.images) <= HOST_GRAINS

    @invariant()
    def pinned_adapters_keep_their_bytes(self) -> None:
        planned = {placement.key for placement in self.planned}
        for key in KEYS:
            if self.pins[key]:
                assert self.residency.state(key) in IN_ARENA
            if self.pins[key] and not self.planned:
                base = self.residency.base(key)
                assert set(self.memory[base : base + SIZES[key]]) == {key}
            if key in planned:
                assert self.residency.state(key) in (Residency.PLACING, Residency.DRAINING)

    @invariant()
    def both_ledgers_equal_a_recount(self) -> None:
        self.obey()
        self.residency.audit()
        ledger = self.residency.ledger
        planned = {placement.key for placement in self.planned}
        assert ledger[MemoryState.IN_FLIGHT] == sum(SIZES[key] for key in planned) * GRAIN
        assert ledger[MemoryState.USED] == sum(SIZES[k] for k in KEYS if self.pins[k] and k not in planned) * GRAIN
        host = self.residency.host_ledger
        assert host[MemoryState.USED] == sum(SIZES[key] for key in planned) * GRAIN
        in_host = {key for key in KEYS if self.residency.state(key) is Residency.HOST}
        assert host[MemoryState.RESERVED] == sum(SIZES[key] for key in in_host if self.waiting[key]) * GRAIN
        assert host[MemoryState.FREE] + host[MemoryState.IN_FLIGHT] == (
            HOST_GRAINS * GRAIN - sum(SIZES[key] for key in self.images) * GRAIN
        )
        for tenant in {key.tenant for key in KEYS}:
            busy = {k for k in KEYS if k.tenant == tenant and (self.pins[k] or k in planned)}
            assert self.residency.in_use_of(tenant) == sum(SIZES[key] for key in busy) * GRAIN

    @invariant()
    def a_hold_has_all_that_pins_leave(self) -> None:
        self.drop_hold_of_a_forgotten_adapter()
        assert self.residency.ledger[MemoryState.RESERVED] == self.n_held() * GRAIN

    @invariant()
    def a_retired_adapter_is_gone_everywhere_exactly_when_nobody_needs_it(self) -> None:
        self.obey()
        for key in list(self.retired):
            if self.is_needed(key):
                assert isinstance(self.residency.refusal(key, self.now), AdapterRetired)
            else:
                assert self.residency.state(key) is None
                assert not self.residency.retired(key)
                assert key not in self.images
                assert key not in {row[0] for row in self.residency.overview()}
                self.retired.discard(key)
        assert {key for key in KEYS if self.residency.retired(key)} == self.retired

    @invariant()
    def the_overview_counts_who_waits_and_runs(self) -> None:
        rows = {key: (pins, waiting) for key, _, _, pins, waiting in self.residency.overview()}
        for key in KEYS:
            assert rows.get(key, (0, 0)) == (self.pins[key], self.waiting[key])
            assert (self.residency.state(key) is Residency.DRAINING) == (key in self.draining)

    def teardown(self) -> None:
        """Whatever happened: everybody who waits can be served, and in the end nothing is held."""
        self.release_hold()
        self.undrain_all()
        self.carry_out()
        for key in KEYS:
            while self.pins[key]:
                self.end(key, is_preempted=False)
        self.obey()
        for key in KEYS:
            if self.waiting[key] and key not in self.failed and key != TOO_LARGE:
                self.bring_in(key)
        for key in KEYS:
            while self.waiting[key]:
                self.unwant(key)
        self.finish_all_loads()
        for key in KEYS:
            self.residency.retire(key)
        self.residency.audit()
        assert self.residency.ledger[MemoryState.FREE] == N_GRAINS * GRAIN
        assert self.residency.host_ledger[MemoryState.FREE] == HOST_GRAINS * GRAIN
        assert self.residency.overview() == []

    def bring_in(self, key: AdapterKey) -> None:
        """As the barrier, any adapter gets to the device in a few loads."""
        for _ in range(4):
            if self.residency.state(key) is not Residency.HOST and self.residency.state(key) not in IN_ARENA:
                self.now += 100.0
                self.residency.promote(key, self.now)
                self.finish_all_loads()
        if self.residency.state(key) is Residency.HOST:
            placement = self.residency.place(key, self.now)
            assert placement is not None
            self.residency.on_placed(key)
        assert self.residency.state(key) is Residency.RESIDENT

    def finish_all_loads(self) -> None:
        self.loading |= set(self.residency.take_loads())
        while self.loading:
            key = self.loading.pop()
            if key == TOO_LARGE:
                self.residency.on_failed(key, AdapterUnavailable("scripted"), self.now)
            else:
                self.residency.on_loaded(key, SIZES[key], self.now)
            self.loading |= set(self.residency.take_loads())


TestResidencyMachine = ResidencyMachine.TestCase
TestResidencyMachine.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
