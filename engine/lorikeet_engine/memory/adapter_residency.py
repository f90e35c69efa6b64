"""Where each adapter is on its way to the device, and who needs it there.

    unknown ──want──▶ LOADING ──on_loaded──▶ HOST ──place──▶ PLACING ──on_placed──▶ RESIDENT ──evicted──▶ unknown
                         └──on_failed──▶ unknown, and the failure is told to whoever waited

Room is taken when a request is about to run, not before: an adapter that was placed early could be evicted again by
the next one before its request had its turn. A pinned adapter stays; unpinned residents are evicted least recently
used first, only when the room is needed. Knows no tensors and starts no loads: it says what to load, and where to
place it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lorikeet_engine.errors import AdapterUnavailable
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.memory.adapter_arena import AdapterArena, Move
from lorikeet_engine.memory.ledger import MemoryState, Owner, PoolLedger


class Residency(StrEnum):
    LOADING = "loading"
    HOST = "host"
    PLACING = "placing"
    RESIDENT = "resident"


@dataclass(frozen=True, slots=True)
class Placement:
    """Copy the loaded image of `key` to grain `base`, after `moves` were carried out in order."""

    key: AdapterKey
    base: int
    moves: tuple[Move, ...]


@dataclass(slots=True)
class _Entry:
    state: Residency
    n_grains: int = 0
    pins: int = 0
    last_used: int = 0


class AdapterResidency:
    """States, pins and room of every adapter the engine knows, over an arena of `n_grains` grains.

    At most `max_loading` are on their way at once: their images lie in host memory, which nothing else bounds.
    """

    def __init__(self, *, n_grains: int, grain_bytes: int, max_loading: int) -> None:
        self._arena = AdapterArena(n_grains)
        self._grain_bytes = grain_bytes
        self.ledger = PoolLedger("adapters", n_grains * grain_bytes)
        self._entries: dict[AdapterKey, _Entry] = {}
        self._max_loading = max_loading
        self._to_load: list[AdapterKey] = []
        self._clock = 0

    def want(self, key: AdapterKey) -> None:
        """Begin the way to the device, unless it has begun."""
        if key not in self._entries:
            self._entries[key] = _Entry(Residency.LOADING)
            self._to_load.append(key)

    @property
    def has_room_to_load(self) -> bool:
        on_their_way = (Residency.LOADING, Residency.HOST)
        return sum(entry.state in on_their_way for entry in self._entries.values()) < self._max_loading

    def take_loads(self) -> list[AdapterKey]:
        """The adapters to start loading now; each is told once."""
        loads, self._to_load = self._to_load, []
        return loads

    def on_loaded(self, key: AdapterKey, n_grains: int) -> None:
        """The image is in host memory and waits for room.

        Raises:
            AdapterUnavailable: the image is larger than the whole arena; the entry is gone.
        """
        if n_grains > self._arena.n_grains:
            del self._entries[key]
            raise AdapterUnavailable(
                f"the adapter takes {n_grains * self._grain_bytes} bytes, the arena holds {self.ledger.capacity}"
            )
        self._entries[key].state = Residency.HOST
        self._entries[key].n_grains = n_grains

    def on_failed(self, key: AdapterKey) -> None:
        """The load failed; the next `want` tries again."""
        del self._entries[key]

    def forget(self, key: AdapterKey) -> None:
        """Nobody waits any more for an adapter in host memory."""
        if self._entries[key].state is not Residency.HOST:
            raise ValueError(f"adapter {key.digest} is {self._entries[key].state} and cannot be forgotten")
        del self._entries[key]

    def place(self, key: AdapterKey) -> Placement | None:
        """Find room for a loaded adapter, evicting and compacting as needed; None when pinned ones fill the arena."""
        entry = self._entries[key]
        if entry.state is not Residency.HOST:
            raise ValueError(f"adapter {key.digest} is {entry.state}, not in host memory")
        if not self._make_room(entry.n_grains):
            return None
        moves: tuple[Move, ...] = ()
        base = self._arena.allocate(key, entry.n_grains)
        if base is None:
            moves = tuple(self._arena.compact())
            base = self._arena.allocate(key, entry.n_grains)
        assert base is not None, "room was made, so the compacted arena has one gap that holds it"
        entry.state = Residency.PLACING
        self._move(key, source=MemoryState.FREE, target=MemoryState.IN_FLIGHT)
        return Placement(key, base, moves)

    def on_placed(self, key: AdapterKey) -> None:
        """The bytes are in the arena."""
        entry = self._entries[key]
        entry.state = Residency.RESIDENT
        self._touch(key)
        target = MemoryState.USED if entry.pins else MemoryState.CACHED
        self._move(key, source=MemoryState.IN_FLIGHT, target=target)

    def state(self, key: AdapterKey) -> Residency | None:
        entry = self._entries.get(key)
        return entry.state if entry else None

    def pin(self, key: AdapterKey) -> None:
        """One more running request uses the adapter; it must have its place in the arena."""
        entry = self._entries[key]
        if entry.state not in (Residency.PLACING, Residency.RESIDENT):
            raise ValueError(f"adapter {key.digest} is {entry.state}, it has no place in the arena")
        self._touch(key)
        entry.pins += 1
        if entry.pins == 1 and entry.state is Residency.RESIDENT:
            self._move(key, source=MemoryState.CACHED, target=MemoryState.USED)

    def unpin(self, key: AdapterKey) -> None:
        entry = self._entries[key]
        if not entry.pins:
            raise ValueError(f"adapter {key.digest} is unpinned more often than pinned")
        entry.pins -= 1
        if not entry.pins and entry.state is Residency.RESIDENT:
            self._move(key, source=MemoryState.USED, target=MemoryState.CACHED)

    def base(self, key: AdapterKey) -> int:
        """Where the adapter's extent begins, in grains; it may move between two steps."""
        return self._arena.base(key)

    def snapshot(self) -> LedgerSnapshot:
        return self.ledger.snapshot()

    def overview(self) -> list[tuple[AdapterKey, Residency, int, int]]:
        """(adapter, state, bytes in the arena or waiting for it, running requests) of every known adapter."""
        return [
            (key, entry.state, entry.n_grains * self._grain_bytes, entry.pins) for key, entry in self._entries.items()
        ]

    def recount(self) -> dict[MemoryState, int]:
        """Bytes by state, counted from extents and pins and not from the ledger."""
        count = dict.fromkeys(MemoryState, 0)
        for key, extent in self._arena.extents().items():
            entry = self._entries[key]
            if entry.state is Residency.PLACING:
                state = MemoryState.IN_FLIGHT
            else:
                state = MemoryState.USED if entry.pins else MemoryState.CACHED
            count[state] += extent.n_grains * self._grain_bytes
        count[MemoryState.FREE] = self._arena.n_free * self._grain_bytes
        return count

    def _make_room(self, n_grains: int) -> bool:
        """Evict the least recently used until `n_grains` are free in total; evict nothing if that is impossible."""
        idle = sorted(
            (key for key, e in self._entries.items() if e.state is Residency.RESIDENT and not e.pins),
            key=lambda key: self._entries[key].last_used,
        )
        victims, free = [], self._arena.n_free
        while free < n_grains and idle:
            victims.append(idle.pop(0))
            free += self._entries[victims[-1]].n_grains
        if free < n_grains:
            return False
        for key in victims:
            self._move(key, source=MemoryState.CACHED, target=MemoryState.FREE)
            self._arena.free(key)
            del self._entries[key]
        return True

    def _touch(self, key: AdapterKey) -> None:
        self._clock += 1
        self._entries[key].last_used = self._clock

    def _move(self, key: AdapterKey, *, source: MemoryState, target: MemoryState) -> None:
        n_bytes = self._entries[key].n_grains * self._grain_bytes
        self.ledger.move(n_bytes, Owner(key.tenant, key.digest), source=source, target=target)
