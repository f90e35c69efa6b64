"""Adapters on their way to the device and back, case by case: who stays, who leaves, what ends where it began."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from lorikeet_engine.errors import AdapterUnavailable
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.entry import AdapterEntries
from lorikeet_engine.memory.adapters.host_cache import LEASE_MIN_S
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Placement, Residency
from lorikeet_engine.memory.ledger import MemoryState

KEYS = [AdapterKey(f"tenant{i % 3}", f"digest{i}") for i in range(4)]


def new_residency(
    n_grains: int = 10, *, host_bytes: int = 1000, max_loading: int = 6, **options: Any
) -> AdapterResidency:
    return AdapterResidency(n_grains=n_grains, grain_bytes=1, host_bytes=host_bytes, max_loading=max_loading, **options)


def load(residency: AdapterResidency, key: AdapterKey, n_grains: int, now: float = 0.0) -> None:
    """A request waits for the adapter, whose image comes."""
    residency.want(key, now)
    assert residency.take_loads() == [key]
    residency.on_loaded(key, n_grains, now)


def run(residency: AdapterResidency, key: AdapterKey, now: float = 0.0) -> Placement | None:
    """The waiting request starts; the adapter is placed if need be."""
    placement = residency.place(key, now) if residency.state(key) is Residency.HOST else None
    residency.pin(key, now)
    residency.unwant(key)
    if placement:
        residency.on_placed(key)
    return placement


def serve(residency: AdapterResidency, key: AdapterKey, n_grains: int, now: float = 0.0) -> Placement | None:
    """One request from the first wish to the end."""
    load(residency, key, n_grains, now)
    placement = run(residency, key, now)
    residency.unpin(key)
    return placement


def test_the_least_recently_used_idle_adapter_makes_room() -> None:
    residency = new_residency(policy="lru")
    for key in KEYS[:2]:
        serve(residency, key, 5)
    residency.want(KEYS[0], 0.0)
    run(residency, KEYS[0])
    residency.unpin(KEYS[0])
    serve(residency, KEYS[2], 5)
    assert residency.state(KEYS[0]) is Residency.RESIDENT
    assert residency.state(KEYS[1]) is Residency.HOST, "its image is still there"
    assert residency.take_evicted() == [KEYS[1]]
    assert residency.evictions["room"] == 1


def test_a_popular_adapter_outlives_one_used_last() -> None:
    residency = new_residency(policy="gdsf")
    serve(residency, KEYS[0], 5)
    for _ in range(3):
        residency.want(KEYS[0], 0.0)
        run(residency, KEYS[0])
        residency.unpin(KEYS[0])
    serve(residency, KEYS[1], 5)
    serve(residency, KEYS[2], 5)
    assert residency.state(KEYS[0]) is Residency.RESIDENT


def test_a_pinned_adapter_is_never_evicted_and_nothing_is_evicted_in_vain() -> None:
    residency = new_residency()
    serve(residency, KEYS[1], 5)
    load(residency, KEYS[0], 5)
    run(residency, KEYS[0])
    load(residency, KEYS[2], 6)
    assert residency.n_bytes_missing(KEYS[2]) == 1
    assert residency.place(KEYS[2], 0.0) is None
    assert residency.state(KEYS[1]) is Residency.RESIDENT


def test_an_adapter_that_is_being_placed_is_neither_evicted_nor_retired_under_the_copy() -> None:
    residency = new_residency()
    load(residency, KEYS[0], 6)
    load(residency, KEYS[1], 6)
    residency.place(KEYS[0], 0.0)
    assert residency.place(KEYS[1], 0.0) is None
    residency.unwant(KEYS[0])
    assert not residency.retire(KEYS[0])
    assert residency.take_dropped() == []
    residency.on_placed(KEYS[0])
    assert residency.state(KEYS[0]) is None
    assert residency.take_dropped() == [KEYS[0]]


def test_fragmented_room_is_joined_by_moves_in_ascending_order() -> None:
    residency = new_residency(12)
    for key in KEYS[:3]:
        serve(residency, key, 4)
    residency.want(KEYS[1], 0.0)
    run(residency, KEYS[1])
    load(residency, KEYS[3], 8)
    placement = run(residency, KEYS[3])
    assert placement is not None
    assert [(move.source, move.target, move.n_grains) for move in placement.moves] == [(4, 0, 4)]
    assert placement.base == 4


def test_a_reload_from_host_memory_reads_no_disk() -> None:
    residency = new_residency()
    for key in (KEYS[0], KEYS[1]):
        serve(residency, key, 6)
    residency.want(KEYS[0], 1.0)
    assert residency.take_loads() == []
    assert residency.state(KEYS[0]) is Residency.HOST
    assert run(residency, KEYS[0], 1.0) is not None
    assert residency.loads == {"disk": 2, "host": 1}


@pytest.mark.parametrize(("arena", "host"), [(10, 1000), (1000, 10)])
def test_an_adapter_larger_than_a_tier_is_refused_and_forgotten(arena: int, host: int) -> None:
    residency = new_residency(arena, host_bytes=host)
    residency.want(KEYS[0], 0.0)
    with pytest.raises(AdapterUnavailable, match=f"11 bytes, the arena holds {arena} and the host cache {host}"):
        residency.on_loaded(KEYS[0], 11, 0.0)
    assert residency.state(KEYS[0]) is None
    assert residency.take_dropped() == [KEYS[0]]
    residency.unwant(KEYS[0])
    assert residency.overview() == []


def test_a_failed_load_is_tried_again_by_the_next_request_only() -> None:
    residency = new_residency()
    residency.want(KEYS[0], 0.0)
    residency.take_loads()
    residency.on_failed(KEYS[0], AdapterUnavailable("scripted"), 0.0)
    assert residency.take_loads() == []
    residency.want(KEYS[0], 1.0)
    assert residency.take_loads() == [KEYS[0]]


def test_two_tenants_with_the_same_file_hold_two_extents() -> None:
    residency = new_residency()
    anna, ben = AdapterKey("anna", "same"), AdapterKey("ben", "same")
    for key in (anna, ben):
        serve(residency, key, 4)
    assert residency.base(anna) != residency.base(ben)
    assert residency.snapshot().by_tenant == {"anna": 4, "ben": 4}
    assert residency.host_ledger.snapshot().by_tenant == {"anna": 4, "ben": 4}


def test_the_hold_takes_what_a_draining_adapter_leaves_and_nobody_else_gets_it() -> None:
    residency = new_residency()
    for key in KEYS[:2]:
        load(residency, key, 5)
        run(residency, key)
    load(residency, KEYS[2], 5)
    load(residency, KEYS[3], 5)
    residency.hold(KEYS[2], 5)
    residency.drain(KEYS[0])
    residency.unpin(KEYS[0])
    assert residency.ledger[MemoryState.RESERVED] == 5
    assert residency.place(KEYS[3], 0.0) is None
    assert residency.n_bytes_missing(KEYS[3]) == 5
    assert run(residency, KEYS[2]) is not None
    assert residency.ledger[MemoryState.RESERVED] == 0
    assert residency.state(KEYS[0]) is not Residency.DRAINING


def test_the_barrier_loads_first_and_breaks_a_lease_that_is_over() -> None:
    residency = new_residency(host_bytes=10, max_loading=1)
    load(residency, KEYS[0], 8)
    residency.want(KEYS[1], 0.0)
    residency.want(KEYS[2], 0.0)
    residency.promote(KEYS[2], LEASE_MIN_S / 2)
    assert residency.take_loads() == []
    residency.promote(KEYS[2], LEASE_MIN_S)
    assert residency.take_loads() == [KEYS[2]]
    assert residency.take_dropped() == [KEYS[0]]
    assert residency.state(KEYS[0]) is None, "and it is wished for again"
    residency.on_loaded(KEYS[2], 2, LEASE_MIN_S)
    assert residency.take_loads() == [KEYS[1]]


def test_fifty_rounds_of_load_and_unload_end_where_they_began() -> None:
    residency = new_residency(8, host_bytes=12)
    for round_ in range(50):
        now = float(round_)
        for key in KEYS[:3]:
            serve(residency, key, 4, now)
        assert residency.retire(KEYS[1])
        assert residency.state(KEYS[1]) is None
        assert KEYS[1] not in {row[0] for row in residency.overview()}
        holders = {**residency.ledger.held_by_owner(), **residency.host_ledger.held_by_owner()}
        assert "digest1" not in {owner.adapter for owner in holders}
        for key in (KEYS[0], KEYS[2]):
            assert residency.retire(key)
        assert set(residency.take_dropped()) == set(KEYS[:3])
        assert residency.ledger[MemoryState.FREE] == 8
        assert residency.host_ledger[MemoryState.FREE] == 12
        residency.audit()


def test_a_retired_adapter_serves_who_runs_on_it_and_then_goes() -> None:
    residency = new_residency()
    load(residency, KEYS[0], 4)
    run(residency, KEYS[0])
    assert not residency.retire(KEYS[0])
    assert residency.overview() == [(KEYS[0], "draining", 4, 1, 0)]
    residency.want(KEYS[0], 1.0)  # its request is preempted, and comes back
    residency.unpin(KEYS[0])
    assert run(residency, KEYS[0]) is None
    assert residency.retired(KEYS[0])
    residency.unpin(KEYS[0])
    assert not residency.retired(KEYS[0])
    assert residency.evictions["retired"] == 1
    residency.want(KEYS[0], 2.0)
    assert residency.take_loads() == [KEYS[0]], "uploaded again, it is a new adapter"


def test_retiring_during_a_load_ends_with_the_load() -> None:
    residency = new_residency()
    residency.want(KEYS[0], 0.0)
    residency.take_loads()
    residency.unwant(KEYS[0])
    assert not residency.retire(KEYS[0])
    residency.on_loaded(KEYS[0], 4, 1.0)
    assert residency.state(KEYS[0]) is None
    assert residency.take_dropped() == [KEYS[0]]


def test_misuse_is_caught() -> None:
    residency = new_residency()
    load(residency, KEYS[0], 4)
    with pytest.raises(ValueError, match="nothing can start"):
        residency.pin(KEYS[0], 0.0)
    with pytest.raises(ValueError, match="no room to give back"):
        residency.drain(KEYS[0])
    run(residency, KEYS[0])
    with pytest.raises(ValueError, match="not in host memory"):
        residency.place(KEYS[0], 0.0)
    with pytest.raises(ValueError, match="unwanted more often"):
        residency.unwant(KEYS[0])
    residency.unpin(KEYS[0])
    with pytest.raises(ValueError, match="unpinned more often"):
        residency.unpin(KEYS[0])


class Unwalkable(dict[AdapterKey, Any]):
    """A dict that can be asked for one key only."""

    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("somebody walks over all adapters")

    __iter__ = keys = values = items = _refuse


class UnwalkableEntries(Unwalkable, AdapterEntries):
    pass


def test_nothing_walks_over_all_known_adapters() -> None:
    """A thousand images lie in host memory, a hundred adapters in the arena; only single ones are looked up."""
    residency = new_residency(400, host_bytes=4000)
    known = [AdapterKey(f"tenant{i % 50}", f"digest{i}") for i in range(1000)]
    for key in known:
        serve(residency, key, 4)
    residency._entries.__class__ = UnwalkableEntries
    parts = (residency._host, residency._room, residency._room._arena)
    for part, name in zip(parts, ("_images", "_tenancies", "_extents"), strict=True):
        setattr(part, name, Unwalkable(getattr(part, name)))
    for i in range(300):
        fresh = AdapterKey("tenant", f"fresh{i}")
        serve(residency, fresh, 1 + i % 7, float(i))
        residency.want(known[i], float(i))
        residency.promote(known[i], float(i))
        for key in residency.take_loads():
            residency.on_loaded(key, 4, float(i))
        residency.hold(known[i], 4)
        run(residency, known[i], float(i))
        residency.drain(known[i])
        residency.undrain_all()
        residency.unpin(known[i])
        residency.retire(fresh)
        residency.take_dropped()
        assert sum(residency.by_state().values()) == len(residency._entries)


def test_an_image_that_finds_no_room_and_nobody_waiting_is_forgotten() -> None:
    residency = new_residency(20, host_bytes=10)
    load(residency, KEYS[0], 4)
    residency.want(KEYS[1], 0.0)
    residency.want(KEYS[2], 0.0)
    assert residency.take_loads() == [KEYS[1]], "the third finds no room until the second has come"
    residency.unwant(KEYS[1])
    residency.on_loaded(KEYS[1], 7, 0.0)
    assert residency.state(KEYS[1]) is None
    assert residency.take_dropped() == [KEYS[1]]
    residency.audit()
