"""Where each adapter is on its way to the device, and who needs it there.

    unknown ──want──▶ LOADING ──on_loaded──▶ HOST ──place──▶ PLACING ──on_placed──▶ RESIDENT ◀──▶ DRAINING
       ▲                 │on_failed           ▲│dropped         evicted, image kept │ │evicted, image gone
       └─────────────────┴────────────────────┼┴────────────────────────────────────┼─┘
                                              └─────────────────────────────────────┘

Two tiers, each with its own ledger: images in host memory (`adapter_host_cache`), extents in the arena
(`adapter_arena`). A resident adapter's image stays in host memory while there is room for it.

Arena room is taken when a request is about to run, not before: an adapter that was placed early could be evicted by
the next one before its request had its turn. A pinned adapter stays; idle ones are evicted by score
(`adapter_eviction`), only when the room is needed. Nothing here walks over all adapters, except what reports or
audits. Knows no tensors and starts no loads: it says what to load, what to drop, and where to place.

For a request the calls are: `want` when it enters the queue, (`place`,) `pin`, `unwant` when it starts, `unpin` when
it ends. In this order: without a waiting or running request an adapter may be dropped at once. A request that is put
back into the queue is `want`ed before it is `unpin`ned.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from lorikeet_engine.errors import AdapterUnavailable
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.memory.adapter_arena import AdapterArena, Move
from lorikeet_engine.memory.adapter_eviction import EvictionOrder, EvictionPolicy, ReloadCost, Usage
from lorikeet_engine.memory.adapter_host_cache import AdapterHostCache
from lorikeet_engine.memory.adapter_wishes import LoadWishes
from lorikeet_engine.memory.ledger import LedgerImbalance, MemoryState, Owner, PoolLedger

PLACE_SECONDS_PER_BYTE = 1 / 20e9
LOAD_SECONDS_PER_BYTE = 1 / 500e6  # read, verify and pack
LOAD_LATENCY_S = 0.005
EVICTION_REASONS = ("room", "barrier", "retired")
LOAD_TIERS = ("disk", "host")


class Residency(StrEnum):
    LOADING = "loading"
    HOST = "host"
    PLACING = "placing"
    RESIDENT = "resident"
    DRAINING = "draining"  # placing or resident, and nothing new may start on it


@dataclass(frozen=True, slots=True)
class Placement:
    """Copy the loaded image of `key` to grain `base`, after `moves` were carried out in order."""

    key: AdapterKey
    base: int
    moves: tuple[Move, ...]


@dataclass(slots=True)
class _Entry:
    """`state` is None while the adapter is in neither tier; it is never DRAINING, which `draining` says."""

    owner: Owner
    state: Residency | None = None
    n_grains: int = 0  # 0 until an image has been seen
    pins: int = 0
    waiting: int = 0
    is_fresh: bool = False  # the image was read from disk and not used yet
    draining: bool = False
    retired: bool = False
    usage: Usage = field(default_factory=Usage)

    @property
    def in_arena(self) -> bool:
        return self.state is Residency.PLACING or self.state is Residency.RESIDENT


@dataclass(frozen=True, slots=True)
class _Hold:
    """Room kept for one adapter: `n_grains` are asked for, what is there of them is RESERVED in the ledger."""

    key: AdapterKey
    n_grains: int


class AdapterResidency:
    """States, pins and room of every adapter on the engine.

    At most `max_loading` are on their way from disk at once, their room in host memory is set aside before they start.
    """

    def __init__(
        self,
        *,
        n_grains: int,
        grain_bytes: int,
        host_bytes: int,
        max_loading: int,
        policy: EvictionPolicy = "gdsf",
        place_seconds_per_byte: float = PLACE_SECONDS_PER_BYTE,
        load_seconds_per_byte: float = LOAD_SECONDS_PER_BYTE,
        load_latency_s: float = LOAD_LATENCY_S,
    ) -> None:
        self.ledger = PoolLedger("adapters", n_grains * grain_bytes)
        self.loads: Counter[str] = Counter(dict.fromkeys(LOAD_TIERS, 0))
        self.evictions: Counter[str] = Counter(dict.fromkeys(EVICTION_REASONS, 0))
        self._arena = AdapterArena(n_grains)
        self._grain_bytes = grain_bytes
        self._host = AdapterHostCache(capacity=host_bytes)
        self._max_loading = max_loading
        cost = ReloadCost(
            place_seconds_per_byte=place_seconds_per_byte,
            load_seconds_per_byte=load_seconds_per_byte,
            load_latency_s=load_latency_s,
        )
        self._order = EvictionOrder(policy, cost)
        self._entries: dict[AdapterKey, _Entry] = {}
        self._wishes = LoadWishes()
        self._to_load: list[AdapterKey] = []
        self._evicted: dict[AdapterKey, None] = {}
        self._draining: set[AdapterKey] = set()
        self._hold: _Hold | None = None
        self._n_held = 0  # grains of the hold that are there
        self._now = 0.0

    def want(self, key: AdapterKey, now: float) -> None:
        """One more request waits for the adapter: once a request. Its load starts when there is room for it.

        What is evicted, dropped, or refused for want of room while somebody waits is loaded again without being asked
        for; only after `on_failed` it takes another `want`.
        """
        self._now = now
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(Owner(key.tenant, key.digest))
        entry.waiting += 1
        if entry.state is None:
            self._wishes.add(key)
            self._start_loads()
        elif entry.state is Residency.HOST:
            self._host.lease(key, now)
        else:
            self._rescore(key, entry)

    def unwant(self, key: AdapterKey) -> None:
        """One waiting request fewer: it started, or went away."""
        entry = self._entries.get(key)
        if entry is None or not entry.waiting:
            raise ValueError(f"adapter {key.digest} is unwanted more often than wanted")
        entry.waiting -= 1
        if entry.state is Residency.RESIDENT:
            self._rescore(key, entry)
        elif not entry.waiting:
            self._wishes.discard(key)
            if entry.state is Residency.HOST:
                entry.is_fresh = False
                self._host.idle(key)
        self._settle(key, entry)
        self._start_loads()

    def promote(self, key: AdapterKey, now: float) -> None:
        """The barrier's adapter: it loads before all others, and the images of expired leases make room for it.

        Asked for again in every step while it is the barrier, since leases expire as time goes by.
        """
        self._now = now
        self._wishes.preferred = key
        self._start_loads()

    def n_waiting(self, key: AdapterKey) -> int:
        entry = self._entries.get(key)
        return entry.waiting if entry else 0

    def take_loads(self) -> list[AdapterKey]:
        """The adapters to start loading now; each is told once."""
        loads, self._to_load = self._to_load, []
        return loads

    def on_loaded(self, key: AdapterKey, n_grains: int, now: float) -> None:
        """The image is in host memory; `take_dropped` says if it cannot stay there.

        Raises:
            AdapterUnavailable: the image is larger than the whole arena, or than all of the host cache.
        """
        self._now = now
        entry = self._entries[key]
        n_bytes = n_grains * self._grain_bytes
        too_large = n_grains > self._arena.n_grains or n_bytes > self._host.ledger.capacity
        entry.state = None
        if too_large or (entry.retired and not entry.waiting):
            self._host.refuse(key)
        else:
            entry.n_grains = n_grains
            self._take_in(key, entry, n_bytes)
        self._settle(key, entry)
        self._start_loads()
        if too_large:
            raise AdapterUnavailable(
                f"the adapter takes {n_bytes} bytes, the arena holds {self.ledger.capacity}, "
                f"the host cache {self._host.ledger.capacity}"
            )

    def on_failed(self, key: AdapterKey) -> None:
        """The load failed; whoever waits must be told, the next `want` tries again."""
        entry = self._entries[key]
        entry.state = None
        self._host.fail(key)
        self._settle(key, entry)
        self._start_loads()

    def take_dropped(self) -> list[AdapterKey]:
        """The adapters whose image must be freed now; each is told once."""
        return self._host.take_dropped()

    def can_place(self, key: AdapterKey) -> bool:
        """Whether `place` would find room now."""
        entry = self._entries.get(key)
        return entry is not None and entry.state is Residency.HOST and entry.n_grains <= self._room_for(key)

    def place(self, key: AdapterKey, now: float) -> Placement | None:
        """Find room for a loaded adapter, evicting and moving as needed; None when pins and the hold leave too little.

        Nothing is evicted in vain. The image stays in host memory until `on_placed`.
        """
        self._now = now
        entry = self._entries[key]
        if entry.state is not Residency.HOST:
            raise ValueError(f"adapter {key.digest} is {entry.state}, not in host memory")
        n_grains = entry.n_grains
        if n_grains > self._room_for(key):
            return None
        if self._hold and self._hold.key == key:
            self.release_hold()
        self._host.use(key)
        missing = n_grains - self._n_unreserved
        if missing > 0:
            self._evict_lowest(missing, "room")
        moves: tuple[Move, ...] = ()
        base = self._arena.allocate(key, n_grains)
        if base is None:
            moves = tuple(self._arena.join_gaps(n_grains))
            base = self._arena.allocate(key, n_grains)
        assert base is not None, "room was made, so the joined gap holds it"
        self.loads["host"] += not entry.is_fresh
        entry.is_fresh = False
        entry.state = Residency.PLACING
        if self._wishes.preferred == key:
            self._wishes.preferred = None
        self._move(entry, MemoryState.FREE, MemoryState.IN_FLIGHT)
        self._start_loads()
        return Placement(key, base, moves)

    def on_placed(self, key: AdapterKey) -> None:
        """The bytes are in the arena."""
        entry = self._entries[key]
        entry.state = Residency.RESIDENT
        self._order.touch(entry.usage)
        self._host.idle(key)
        self._move(entry, MemoryState.IN_FLIGHT, MemoryState.USED if entry.pins else MemoryState.CACHED)
        self._release_to_order(key, entry)
        self._start_loads()

    def pin(self, key: AdapterKey, now: float) -> None:
        """One more running request uses the adapter, which has its place in the arena and is not draining."""
        self._now = now
        entry = self._entries[key]
        if not entry.in_arena or entry.draining:
            raise ValueError(f"adapter {key.digest} is {self.state(key)}, nothing can start on it")
        self._order.hit(entry.usage, now)
        entry.pins += 1
        if entry.pins == 1 and entry.state is Residency.RESIDENT:
            self._order.withdraw(key)
            self._move(entry, MemoryState.CACHED, MemoryState.USED)

    def unpin(self, key: AdapterKey) -> None:
        """One running request fewer."""
        entry = self._entries.get(key)
        if entry is None or not entry.pins:
            raise ValueError(f"adapter {key.digest} is unpinned more often than pinned")
        entry.pins -= 1
        self._order.touch(entry.usage)
        if not entry.pins and entry.state is Residency.RESIDENT:
            self._move(entry, MemoryState.USED, MemoryState.CACHED)
            self._release_to_order(key, entry)
            self._start_loads()

    def take_evicted(self) -> list[AdapterKey]:
        """The adapters that left the arena since the last call."""
        evicted, self._evicted = self._evicted, {}
        return list(evicted)

    def drain(self, key: AdapterKey) -> None:
        """Let nothing new start on an adapter in the arena, so that its room comes back."""
        entry = self._entries[key]
        if not entry.in_arena:
            raise ValueError(f"adapter {key.digest} is {entry.state} and has no room to give back")
        entry.draining = True
        self._draining.add(key)

    def undrain_all(self) -> None:
        for key in self._draining:
            self._entries[key].draining = False
        self._draining.clear()

    def is_draining(self, key: AdapterKey) -> bool:
        return key in self._draining

    def hold(self, key: AdapterKey, n_grains: int) -> None:
        """Keep `n_grains` for `key`: what is free or idle at once, the rest as pins go. Replaces an earlier hold."""
        if self._hold == _Hold(key, n_grains):
            return
        self.release_hold()
        self._hold = _Hold(key, n_grains)
        self._fill_hold()

    def release_hold(self) -> None:
        """Give back what is held; `place` of the adapter it is for does so itself."""
        if self._hold:
            owner = Owner(self._hold.key.tenant, self._hold.key.digest)
            n_bytes = self._n_held * self._grain_bytes
            self._hold, self._n_held = None, 0
            self.ledger.move(n_bytes, owner, source=MemoryState.RESERVED, target=MemoryState.FREE)

    def retire(self, key: AdapterKey) -> bool:
        """Forget the adapter in both tiers as soon as nobody runs on it or waits for it; true when it is gone at once.

        A load or copy under way ends first. Who must not start any more is the scheduler's to say: a request that
        was preempted still waits for it.
        """
        entry = self._entries.get(key)
        if entry:
            entry.retired = True
            self._settle(key, entry)
            self._start_loads()
        return key not in self._entries

    def retired(self, key: AdapterKey) -> bool:
        """Whether the adapter is on its way out; false again once it is gone."""
        entry = self._entries.get(key)
        return entry is not None and entry.retired

    def state(self, key: AdapterKey) -> Residency | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        return Residency.DRAINING if entry.draining else entry.state

    def base(self, key: AdapterKey) -> int:
        """Where the adapter's extent begins, in grains; it may move between two steps."""
        return self._arena.base(key)

    def n_grains_of(self, key: AdapterKey) -> int:
        """0 while no image of it was seen."""
        entry = self._entries.get(key)
        return entry.n_grains if entry else 0

    def in_use_of(self, tenant: str) -> int:
        """Bytes of the arena that a tenant's pinned adapters and those being placed take; what is held not counted."""
        in_use = self.ledger.in_use_of(tenant)
        if self._hold and self._hold.key.tenant == tenant:
            in_use -= self._n_held * self._grain_bytes
        return in_use

    @property
    def host_ledger(self) -> PoolLedger:
        return self._host.ledger

    @property
    def host_drops(self) -> Counter[str]:
        return self._host.drops

    def snapshot(self) -> LedgerSnapshot:
        outside = self._arena.n_free - self._arena.largest_gap
        return self.ledger.snapshot(external_fragmentation=outside * self._grain_bytes)

    def host_snapshot(self) -> LedgerSnapshot:
        return self._host.snapshot()

    def overview(self) -> list[tuple[AdapterKey, str, int, int, int]]:
        """(adapter, state, bytes, running requests, waiting requests) of every known adapter.

        The state is a `Residency`, or "cold" for an adapter that waits for its load; a retired one is draining.
        """
        rows = []
        for key, entry in self._entries.items():
            drains = entry.in_arena and (entry.draining or entry.retired)
            state = Residency.DRAINING.value if drains else entry.state.value if entry.state else "cold"
            rows.append((key, state, entry.n_grains * self._grain_bytes, entry.pins, entry.waiting))
        return rows

    def recount(self) -> dict[MemoryState, int]:
        """Bytes of the arena by state, counted from extents, pins and the hold, and not from the ledger."""
        count = dict.fromkeys(MemoryState, 0)
        for key, extent in self._arena.extents().items():
            entry = self._entries[key]
            if entry.state is Residency.PLACING:
                state = MemoryState.IN_FLIGHT
            else:
                state = MemoryState.USED if entry.pins else MemoryState.CACHED
            count[state] += extent.n_grains * self._grain_bytes
        count[MemoryState.RESERVED] = self._n_held * self._grain_bytes
        count[MemoryState.FREE] = sum(gap.n_grains for gap in self._arena.gaps()) * self._grain_bytes
        count[MemoryState.FREE] -= count[MemoryState.RESERVED]
        return count

    def host_recount(self) -> dict[MemoryState, int]:
        return self._host.recount()

    def audit(self) -> None:
        """Raise `LedgerImbalance` unless both ledgers equal a recount and every adapter is where its state says."""
        for ledger, recount in ((self.ledger, self.recount()), (self.host_ledger, self.host_recount())):
            ledger.audit()
            if {state: ledger[state] for state in MemoryState} != recount:
                raise LedgerImbalance(f"{ledger.name}: a recount says {recount}")
        extents = self._arena.extents()
        for key, entry in self._entries.items():
            idle = entry.state is Residency.RESIDENT and not entry.pins
            wishes = key in self._wishes
            right = (
                entry.in_arena == (key in extents)
                and idle == (key in self._order)
                and (key in self._host or entry.state not in (Residency.HOST, Residency.PLACING))
                and (not wishes or (entry.state is None and entry.waiting > 0))
                and (entry.state is not None or entry.waiting > 0)
                and (not entry.pins or entry.in_arena)
            )
            if not right:
                raise LedgerImbalance(f"adapter {key.digest} is not where its state says: {entry}")

    @property
    def _n_unreserved(self) -> int:
        return self._arena.n_free - self._n_held

    def _room_for(self, key: AdapterKey) -> int:
        """Grains that are free or could be, without what is held for another adapter."""
        held = self._n_held if self._hold and self._hold.key == key else 0
        return self._n_unreserved + self._order.n_grains + held

    def _start_loads(self) -> None:
        while self._host.n_loading < self._max_loading and (key := self._wishes.head()) is not None:
            entry = self._entries[key]
            n_bytes = entry.n_grains * self._grain_bytes
            breaks_leases = key == self._wishes.preferred
            dropped = self._host.begin(key, n_bytes, self._now, breaks_leases=breaks_leases)
            if dropped is None:
                return
            self._wishes.grant(key)
            entry.state = Residency.LOADING
            self._to_load.append(key)
            self._on_images_dropped(dropped)

    def _take_in(self, key: AdapterKey, entry: _Entry, n_bytes: int) -> None:
        """Keep a loaded image if there is room; if not, whoever waits gets it loaded again when there is."""
        breaks_leases = key == self._wishes.preferred
        dropped = self._host.arrive(key, n_bytes, self._now, breaks_leases=breaks_leases)
        if dropped is None:
            if entry.waiting:
                self._wishes.add(key, first=True)
            return
        entry.state = Residency.HOST
        entry.is_fresh = True
        self.loads["disk"] += 1
        if entry.waiting:
            self._host.lease(key, self._now)
        self._on_images_dropped(dropped)

    def _on_images_dropped(self, keys: list[AdapterKey]) -> None:
        for key in keys:
            entry = self._entries[key]
            if entry.state is Residency.HOST:
                entry.state = None
                if entry.waiting:
                    self._wishes.add(key)
                self._settle(key, entry)
            else:
                self._rescore(key, entry)  # it costs more to bring back now

    def _rescore(self, key: AdapterKey, entry: _Entry) -> None:
        if key in self._order:
            self._offer(key, entry)

    def _offer(self, key: AdapterKey, entry: _Entry) -> None:
        score = self._order.score(
            entry.usage,
            waiting=entry.waiting,
            n_grains=entry.n_grains,
            n_bytes=entry.n_grains * self._grain_bytes,
            from_host=key in self._host,
            now=self._now,
        )
        self._order.offer(key, entry.n_grains, score)

    def _release_to_order(self, key: AdapterKey, entry: _Entry) -> None:
        """A resident adapter without pins may leave: for good if it is retired, for the hold if there is one."""
        if entry.pins:
            return
        self._settle(key, entry)
        if entry.state is Residency.RESIDENT:
            self._offer(key, entry)
        self._fill_hold()

    def _fill_hold(self) -> None:
        if self._hold is None:
            return
        missing = self._hold.n_grains - self._n_held
        to_evict = min(missing - self._n_unreserved, self._order.n_grains)
        if to_evict > 0:
            self._evict_lowest(to_evict, "barrier")
        n_grains = min(missing, self._n_unreserved)
        self._n_held += n_grains
        owner = Owner(self._hold.key.tenant, self._hold.key.digest)
        n_bytes = n_grains * self._grain_bytes
        self.ledger.move(n_bytes, owner, source=MemoryState.FREE, target=MemoryState.RESERVED)

    def _evict_lowest(self, n_grains: int, reason: str) -> None:
        for key in self._order.take(n_grains):
            entry = self._entries[key]
            self._evict(key, entry, reason)
            self._settle(key, entry)

    def _evict(self, key: AdapterKey, entry: _Entry, reason: str) -> None:
        """Take an idle adapter out of the arena; its image in host memory, if it is still there, is as good as used."""
        self._order.withdraw(key)
        self._arena.free(key)
        self._move(entry, MemoryState.CACHED, MemoryState.FREE)
        entry.draining = False
        self._draining.discard(key)
        self.evictions[reason] += 1
        self._evicted[key] = None
        if key in self._host:
            entry.state = Residency.HOST
            if entry.waiting:
                self._host.lease(key, self._now)
            else:
                self._host.idle(key)
        else:
            entry.state = None
            if entry.waiting:
                self._wishes.add(key)

    def _settle(self, key: AdapterKey, entry: _Entry) -> None:
        """Forget the adapter if nobody needs it and it is in neither tier, or must leave both."""
        if entry.waiting or entry.pins or entry.state in (Residency.LOADING, Residency.PLACING):
            return
        if entry.retired:
            if entry.state is Residency.RESIDENT:
                self._evict(key, entry, "retired")
                self._fill_hold()
            if key in self._host:
                self._host.drop(key, "retired")
            entry.state = None
        if entry.state is None:
            del self._entries[key]
            if self._wishes.preferred == key:
                self._wishes.preferred = None
            if self._hold and self._hold.key == key:
                self.release_hold()

    def _move(self, entry: _Entry, source: MemoryState, target: MemoryState) -> None:
        self.ledger.move(entry.n_grains * self._grain_bytes, entry.owner, source=source, target=target)
