"""Where each adapter is on its way to the device, and who needs it there.

    unknown ──want──▶ LOADING ──on_loaded──▶ HOST ──place──▶ PLACING ──on_placed──▶ RESIDENT ◀──▶ DRAINING
       ▲                 │                   │  ▲                                      │
       └────on_failed────┴──────dropped──────┘  └───────evicted, image still there─────┘  (image gone: unknown)

Two tiers, each with its ledger: images in host memory (`host_cache`), extents in the arena (`room`). A
resident adapter's image stays in host memory as long as there is room. Arena room is taken when a request is about to
run, not before, or the next one could evict what the first has not used yet. Nothing here walks over all adapters,
except what reports or audits. Knows no tensors and starts no loads: it says what to load, drop and place.

For a request the calls are: `want` when it enters the queue; `place` if need be, `pin` and then `unwant` when it
starts; `unpin` when it ends. The order matters, since an adapter that nobody waits for or runs on may be dropped at
once. So a request that goes back into the queue is `want`ed before it is `unpin`ned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from lorikeet_engine.errors import AdapterRetired, AdapterUnavailable, EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.memory.adapters.audit import audit_adapters
from lorikeet_engine.memory.adapters.circuits import AdapterCircuits
from lorikeet_engine.memory.adapters.entry import AdapterEntries, AdapterEntry, KnownAdapter, Residency
from lorikeet_engine.memory.adapters.eviction import Demand, EvictionOrder, EvictionPolicy, ReloadCost
from lorikeet_engine.memory.adapters.host_cache import AdapterHostCache
from lorikeet_engine.memory.adapters.room import AdapterRoom, Hold, Placement

__all__ = ["AdapterResidency", "Placement", "Residency"]


class AdapterResidency:
    """States, pins and room of every adapter on the engine.

    At most `max_loading` load from disk at once; `n_prefix_blocks` says how many KV blocks are cached for an adapter.
    """

    def __init__(
        self,
        *,
        n_grains: int,
        grain_bytes: int,
        host_bytes: int,
        max_loading: int,
        policy: EvictionPolicy = "gdsf",
        reload_cost: ReloadCost | None = None,
        n_prefix_blocks: Callable[[AdapterKey], int] = lambda _: 0,
    ) -> None:
        self.grain_bytes = grain_bytes
        self.loads = Counter(disk=0, host=0)  # images read from disk, and placements that needed no such read
        self.evictions = Counter(room=0, barrier=0, retired=0)
        self._n_prefix_blocks = n_prefix_blocks
        self._order = EvictionOrder(policy, reload_cost or ReloadCost())
        self._room = AdapterRoom(n_grains=n_grains, grain_bytes=grain_bytes, order=self._order)
        self._host = AdapterHostCache(capacity=host_bytes, max_loading=max_loading)
        self.ledger, self.host_ledger = self._room.ledger, self._host.ledger
        self._circuits = AdapterCircuits()
        self._entries = AdapterEntries()
        self._evicted: dict[AdapterKey, None] = {}
        self._draining: set[AdapterKey] = set()
        self._now = 0.0

    def refusal(self, key: AdapterKey, now: float) -> EngineError | None:
        """Why no new request may begin with the adapter; None when it may."""
        if self.retired(key):
            return AdapterRetired("the adapter's version is being taken out of service", param="model")
        return self._circuits.refusal(key, now)

    def want(self, key: AdapterKey, now: float) -> None:
        """One more request waits for the adapter: once a request. Its load starts when there is room for it.

        While somebody waits, what is dropped again is loaded again; only after `on_failed` it takes another `want`.
        """
        self._now = now
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries.add(key)
        entry.waiting += 1
        if entry.state is None:
            self._host.wish(key, self.n_bytes_of(key))
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
        self._rescore(key, entry)
        if not entry.waiting:
            self._host.unwish(key)
            if entry.state is Residency.HOST:
                entry.is_fresh = False
                self._host.idle(key)
        self._settle(key, entry)
        self._start_loads()

    def promote(self, key: AdapterKey, now: float) -> None:
        """The barrier's adapter: it loads before all others, and the images of expired leases make room for it.

        To be called in every step while it is the barrier, since leases expire as time goes by.
        """
        self._now = now
        self._host.prefer(key)
        self._start_loads()

    def expected_load_s(self, now: float) -> float:
        return self._host.expected_load_s(now)

    def take_loads(self) -> list[AdapterKey]:
        """The adapters to start loading now; each is told once."""
        return self._host.take_loads()

    def on_loaded(self, key: AdapterKey, n_grains: int, now: float) -> None:
        """The image is in host memory; `take_dropped` says if it cannot stay there.

        Raises:
            AdapterUnavailable: the image is larger than the whole arena, or than all of the host cache.
        """
        self._now = now
        entry = self._entries[key]
        entry.state = None
        n_bytes = n_grains * self.grain_bytes
        too_large = n_bytes > self.ledger.capacity or n_bytes > self.host_ledger.capacity
        if too_large or (entry.retired and not entry.waiting):
            self._host.refuse(key)
        else:
            self._take_in(key, entry, n_grains)
        self._settle(key, entry)
        self._start_loads()
        if too_large:
            error = AdapterUnavailable(
                f"the adapter takes {n_bytes} bytes, the arena holds {self.ledger.capacity} "
                f"and the host cache {self.host_ledger.capacity}",
                param="model",
            )
            raise self._circuits.fail(key, error, now)
        self._circuits.close(key)

    def on_failed(self, key: AdapterKey, error: EngineError, now: float) -> EngineError:
        """The load failed, the next `want` tries again; whoever waits must be told what this returns."""
        self._entries[key].state = None
        self._host.fail(key)
        self._settle(key, self._entries[key])
        self._start_loads()
        return self._circuits.fail(key, error, now)

    def take_dropped(self) -> list[AdapterKey]:
        """The adapters whose image must be freed now; each is told once."""
        return self._host.take_dropped()

    def place(self, key: AdapterKey, now: float) -> Placement | None:
        """Find room for a loaded adapter, evicting and moving as needed; None when pins and the hold leave too little.

        Nothing is evicted in vain. The image stays in host memory until `on_placed`.
        """
        self._now = now
        entry = self._entries[key]
        if entry.state is not Residency.HOST:
            raise ValueError(f"adapter {key.digest} is {entry.state}, not in host memory")
        if entry.n_grains > self._room.room_for(key):
            return None
        self._host.use(key)
        placement, evicted = self._room.place(key, entry.n_grains)
        entry.state = Residency.PLACING
        self.loads["host"] += not entry.is_fresh
        entry.is_fresh = False
        self._host.stop_preferring(key)
        self._on_evicted(evicted, "room")
        self._start_loads()
        return placement

    def on_placed(self, key: AdapterKey) -> None:
        """The bytes are in the arena."""
        entry = self._entries[key]
        entry.state = Residency.RESIDENT
        self._host.idle(key)
        self._order.touch(entry.usage)
        if entry.pins:
            self._room.use(key)
        else:
            self._let_go(key, entry)
        self._start_loads()

    def pin(self, key: AdapterKey, now: float, *, is_first: bool = True) -> None:
        """One more running request uses the adapter, which has its place in the arena and is not draining.

        `is_first` is false for a request that ran before: it adds nothing to the adapter's heat.
        """
        self._now = now
        entry = self._entries[key]
        if not entry.in_arena or entry.draining:
            raise ValueError(f"adapter {key.digest} is {self.state(key)}, nothing can start on it")
        self._order.hit(entry.usage, now)
        entry.pins += 1
        if is_first:
            entry.heat.add(now)
        if entry.pins == 1 and entry.state is Residency.RESIDENT:
            self._room.use(key)

    def unpin(self, key: AdapterKey) -> None:
        """One running request fewer."""
        entry = self._entries.get(key)
        if entry is None or not entry.pins:
            raise ValueError(f"adapter {key.digest} is unpinned more often than pinned")
        entry.pins -= 1
        self._order.touch(entry.usage)
        if not entry.pins and entry.state is Residency.RESIDENT:
            self._let_go(key, entry)
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
        while self._draining:
            self._entries[self._draining.pop()].draining = False

    def hold(self, key: AdapterKey, n_grains: int) -> None:
        """Keep `n_grains` for `key`: what is free or idle at once, the rest as pins go. Replaces an earlier hold."""
        self._on_evicted(self._room.start_hold(Hold(key, n_grains)), "barrier")

    def release_hold(self) -> None:
        """Give back what is held, and let no load come first; `place` of the adapter it is for does so itself."""
        self._room.release_hold()
        self._host.stop_preferring()

    def retire(self, key: AdapterKey) -> bool:
        """Forget the adapter in both tiers as soon as nobody runs on it or waits for it; true when it is gone at once.

        A load or copy under way ends first. The scheduler says what must not start any more.
        """
        if entry := self._entries.get(key):
            entry.retired = True
            self._settle(key, entry)
            self._start_loads()
        return key not in self._entries

    def restore(self, key: AdapterKey) -> None:
        """Put an adapter into service again; one that is not on its way out is left as it is."""
        if entry := self._entries.get(key):
            entry.retired = False

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
        return self._room.base(key)

    def n_grains_of(self, key: AdapterKey) -> int:
        """0 while no image of it was seen."""
        entry = self._entries.get(key)
        return entry.n_grains if entry else 0

    def n_bytes_of(self, key: AdapterKey) -> int:
        """0 while no image of it was seen."""
        return self.n_grains_of(key) * self.grain_bytes

    def n_bytes_missing(self, key: AdapterKey) -> int:
        """What pinned adapters have to give back before `place` finds room."""
        entry = self._entries[key]
        missing = 0 if entry.in_arena else entry.n_grains - self._room.room_for(key)
        return max(0, missing) * self.grain_bytes

    def in_use_of(self, tenant: str) -> int:
        """Bytes of the arena that a tenant's pinned adapters and those being placed take; what is held not counted."""
        return self._room.in_use_of(tenant)

    def snapshot(self) -> LedgerSnapshot:
        return self._room.snapshot()

    def overview(self, now: float | None = None, only: AdapterKey | None = None) -> list[KnownAdapter]:
        """All known adapters; with `now`, those in demand then; or `only` one."""
        return [(k, e.word, self.n_bytes_of(k), e.pins, e.waiting) for k, e in self._entries.chosen(now, only)]

    def by_state(self) -> dict[str, int]:
        """How many adapters are in each state, in the words of `overview`; costs the same however many there are."""
        return self._entries.by_state()

    def heat_of(self, key: AdapterKey, now: float) -> float:
        """Requests a minute that started on the adapter of late."""
        entry = self._entries.get(key)
        return entry.heat.per_minute(now) if entry else 0.0

    def audit(self) -> None:
        """See `audit_adapters`."""
        audit_adapters(self._entries, self._room, self._host)

    def _start_loads(self) -> None:
        while started := self._host.start_next(self._now):
            key, dropped = started
            self._entries[key].state = Residency.LOADING
            self._on_images_dropped(dropped)

    def _take_in(self, key: AdapterKey, entry: AdapterEntry, n_grains: int) -> None:
        """Keep a loaded image if there is room; if not, whoever waits gets it loaded again when there is."""
        entry.n_grains = n_grains
        dropped = self._host.arrive(key, n_grains * self.grain_bytes, self._now)
        self.loads["disk"] += 1
        if dropped is not None:
            entry.is_fresh = entry.waiting > 0
            self._keep_image(key, entry)
            self._on_images_dropped(dropped)
        elif entry.waiting:
            self._host.wish(key, self.n_bytes_of(key))

    def _on_images_dropped(self, keys: list[AdapterKey]) -> None:
        for key in keys:
            entry = self._entries[key]
            if entry.state is Residency.HOST:
                self._lose(key, entry)
            else:
                self._rescore(key, entry)  # it costs more to bring back now

    def _on_evicted(self, keys: list[AdapterKey], reason: str) -> None:
        """The adapters left the arena; an image in host memory is as good as used just now."""
        for key in keys:
            entry = self._entries[key]
            self._note_eviction(key, entry, reason)
            if key in self._host:
                self._keep_image(key, entry)
            else:
                self._lose(key, entry)

    def _note_eviction(self, key: AdapterKey, entry: AdapterEntry, reason: str) -> None:
        entry.draining = False
        self._draining.discard(key)
        self._evicted[key] = None
        self.evictions[reason] += 1

    def _keep_image(self, key: AdapterKey, entry: AdapterEntry) -> None:
        entry.state = Residency.HOST
        if entry.waiting:
            self._host.lease(key, self._now)
        else:
            self._host.idle(key)

    def _lose(self, key: AdapterKey, entry: AdapterEntry) -> None:
        """The adapter is in neither tier any more."""
        entry.state = None
        if entry.waiting:
            self._host.wish(key, self.n_bytes_of(key))
        self._settle(key, entry)

    def _let_go(self, key: AdapterKey, entry: AdapterEntry) -> None:
        """The last pin went: the adapter may leave; if it is retired, or the room is held, it does."""
        self._offer(key, entry)
        self._settle(key, entry)
        self._on_evicted(self._room.fill_hold(), "barrier")

    def _rescore(self, key: AdapterKey, entry: AdapterEntry) -> None:
        if key in self._order:
            self._offer(key, entry)

    def _offer(self, key: AdapterKey, entry: AdapterEntry) -> None:
        demand = Demand(entry.waiting, self._n_prefix_blocks(key), from_host=key in self._host)
        self._room.idle(key, entry.usage, demand, self._now)

    def _settle(self, key: AdapterKey, entry: AdapterEntry) -> None:
        """Forget the adapter if nobody needs it and it is in neither tier, or must leave both."""
        if entry.is_needed:
            return
        if entry.retired:
            if entry.state is Residency.RESIDENT:
                self._room.leave(key)
                self._note_eviction(key, entry, "retired")
            if key in self._host:
                self._host.drop(key, "retired")
            entry.state = None
        if entry.state is None:
            del self._entries[key]
            self._host.stop_preferring(key)
            self._room.release_hold(key)
            self._on_evicted(self._room.fill_hold(), "barrier")
