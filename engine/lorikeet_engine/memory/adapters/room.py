"""Whose bytes the arena holds, what of them may leave, and what is kept free for the scheduler's barrier.

An adapter in the arena is being placed (in flight), used, or idle (cached). Idle ones are taken out by score when
another needs the room, and every change of who is where goes through the ledger. Room that is held is reserved: it is
free, or made free at once as adapters become idle, and nobody else gets it. Why an adapter is used, and where it goes
when it leaves, is `residency`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.memory.adapters.arena import AdapterArena, Move
from lorikeet_engine.memory.adapters.eviction import Demand, EvictionOrder, Usage
from lorikeet_engine.memory.ledger import MemoryState, Owner, PoolLedger


@dataclass(frozen=True, slots=True)
class Placement:
    """Copy the loaded image of `key` to grain `base`, after `moves` were carried out in order."""

    key: AdapterKey
    base: int
    moves: tuple[Move, ...]


@dataclass(slots=True)
class _Tenancy:
    owner: Owner
    n_grains: int
    n_bytes: int
    state: MemoryState


class Hold(NamedTuple):
    """Room kept for one adapter: so many grains are asked for; fewer may be there."""

    key: AdapterKey
    n_grains: int


class AdapterRoom:
    """The arena's extents by state, over a ledger in bytes.

    Invariant: while less is held than the hold asks for, nothing else is free and nothing is idle.
    """

    def __init__(self, *, n_grains: int, grain_bytes: int, order: EvictionOrder) -> None:
        self.ledger = PoolLedger("adapters", n_grains * grain_bytes)
        self.grain_bytes = grain_bytes
        self.order = order
        self._arena = AdapterArena(n_grains)
        self._tenancies: dict[AdapterKey, _Tenancy] = {}
        self._hold: Hold | None = None
        self._n_held = 0  # grains that are there

    def __contains__(self, key: AdapterKey) -> bool:
        return key in self._tenancies

    def base(self, key: AdapterKey) -> int:
        return self._arena.base(key)

    def room_for(self, key: AdapterKey) -> int:
        """Grains that are free or could be, without what is held for another adapter."""
        held = self._n_held if self._hold and self._hold.key == key else 0
        return self._n_unreserved + self.order.n_grains + held

    def place(self, key: AdapterKey, n_grains: int) -> tuple[Placement, list[AdapterKey]]:
        """Give `key` an extent, and say who left for it; the caller knows that there is room (`room_for`)."""
        self.release_hold(key)
        evicted = self._evict_for(n_grains)
        moves: tuple[Move, ...] = ()
        base = self._arena.allocate(key, n_grains)
        if base is None:
            moves = tuple(self._arena.join_gaps(n_grains))
            base = self._arena.allocate(key, n_grains)
        assert base is not None, "room was made, so the joined gap holds it"
        owner = Owner(key.tenant, key.digest)
        self._tenancies[key] = _Tenancy(owner, n_grains, n_grains * self.grain_bytes, MemoryState.FREE)
        self._set(key, MemoryState.IN_FLIGHT)
        return Placement(key, base, moves), evicted

    def use(self, key: AdapterKey) -> None:
        """It must stay."""
        self.order.withdraw(key)
        self._set(key, MemoryState.USED)

    def idle(self, key: AdapterKey, usage: Usage, demand: Demand, now: float) -> None:
        """It may leave; also when only its score has changed. `fill_hold` must follow."""
        tenancy = self._tenancies[key]
        score = self.order.score(usage, demand, n_grains=tenancy.n_grains, n_bytes=tenancy.n_bytes, now=now)
        self.order.offer(key, tenancy.n_grains, score)
        self._set(key, MemoryState.CACHED)

    def leave(self, key: AdapterKey) -> None:
        """An idle adapter leaves. `fill_hold` must follow."""
        self.order.withdraw(key)
        self._arena.free(key)
        self._set(key, MemoryState.FREE)
        del self._tenancies[key]

    def start_hold(self, hold: Hold) -> list[AdapterKey]:
        """Keep room from now on, in place of an earlier hold; says who left for it at once."""
        if self._hold == hold:
            return []
        self.release_hold()
        self._hold = hold
        return self.fill_hold()

    def fill_hold(self) -> list[AdapterKey]:
        """Keep what has become free or idle, and say who left for it."""
        if self._hold is None:
            return []
        missing = self._hold.n_grains - self._n_held
        evicted = self._evict_for(min(missing, self._n_unreserved + self.order.n_grains))
        n_grains = min(missing, self._n_unreserved)
        self._n_held += n_grains
        self._move_held(self._hold.key, n_grains, source=MemoryState.FREE, target=MemoryState.RESERVED)
        return evicted

    def release_hold(self, key: AdapterKey | None = None) -> None:
        """Give back what is held; with `key`, only if it is held for that adapter."""
        if self._hold and key in (None, self._hold.key):
            self._move_held(self._hold.key, self._n_held, source=MemoryState.RESERVED, target=MemoryState.FREE)
            self._hold, self._n_held = None, 0

    def in_use_of(self, tenant: str) -> int:
        """Bytes of a tenant's adapters that are used or being placed; what is held is not counted."""
        in_use = self.ledger.in_use_of(tenant)
        if self._hold and self._hold.key.tenant == tenant:
            in_use -= self._n_held * self.grain_bytes
        return in_use

    def snapshot(self) -> LedgerSnapshot:
        outside = self._arena.n_free - self._arena.largest_gap
        return self.ledger.snapshot(external_fragmentation=outside * self.grain_bytes)

    def recount(self) -> dict[MemoryState, int]:
        """Bytes by state, counted from extents, gaps and the hold, and not from the ledger."""
        count = dict.fromkeys(MemoryState, 0)
        for key, extent in self._arena.extents().items():
            count[self._tenancies[key].state] += extent.n_grains * self.grain_bytes
        count[MemoryState.RESERVED] = self._n_held * self.grain_bytes
        n_free = sum(gap.n_grains for gap in self._arena.gaps())
        count[MemoryState.FREE] = (n_free - self._n_held) * self.grain_bytes
        return count

    @property
    def _n_unreserved(self) -> int:
        return self._arena.n_free - self._n_held

    def _evict_for(self, n_grains: int) -> list[AdapterKey]:
        """Take out idle adapters until `n_grains` are free and not held."""
        missing = n_grains - self._n_unreserved
        evicted = self.order.take(missing) if missing > 0 else []
        for key in evicted:
            self.leave(key)
        return evicted

    def _set(self, key: AdapterKey, state: MemoryState) -> None:
        tenancy = self._tenancies[key]
        if state is not tenancy.state:
            self.ledger.move(tenancy.n_bytes, tenancy.owner, source=tenancy.state, target=state)
            tenancy.state = state

    def _move_held(self, key: AdapterKey, n_grains: int, *, source: MemoryState, target: MemoryState) -> None:
        owner = Owner(key.tenant, key.digest)
        self.ledger.move(n_grains * self.grain_bytes, owner, source=source, target=target)
