"""Which packed adapters lie in host memory or are on their way there, and which of them may be dropped.

    wish ──start_next──▶ in flight ──arrive──▶ idle ◀──▶ leased     a request waits for the image
                                               idle ◀──▶ in use     the image is being copied to the device

A load starts only when room for it was set aside. Idle images are kept as long as nothing else needs the room, and
dropped least recently used first. A leased one is never dropped before its time, a few loads long; after it, only for
the image that the scheduler's barrier waits for. Whether the adapter is on the device as well is `residency`'s
business, the bytes are the loop's.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from math import exp2

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.wishes import LoadWishes
from lorikeet_engine.memory.ledger import MemoryState, Owner, PoolLedger

LEASE_LOADS = 4.0
LOAD_MEMORY = 0.75  # weight of earlier loads when one has just ended; what is long ago says less
LOAD_HALF_LIFE_S = 30.0
LEASE_MIN_S = 1.0
LEASE_MAX_S = 30.0  # however slow the store is: the barrier may have to wait for a lease


@dataclass(slots=True)
class _Image:
    owner: Owner
    n_bytes: int
    state: MemoryState
    expires: float = 0.0  # of the lease


@dataclass(frozen=True, slots=True)
class _Load:
    owner: Owner
    n_bytes: int  # as expected
    started: float


class AdapterHostCache:
    """Images within `capacity` bytes. Every call costs O(1), or O(1) for each image it drops."""

    def __init__(self, *, capacity: int, max_loading: int) -> None:
        self.ledger = PoolLedger("host", capacity)
        self.drops = Counter(room=0, lease_expired=0, no_room=0, retired=0)
        self._images: dict[AdapterKey, _Image] = {}
        self._idle: OrderedDict[AdapterKey, None] = OrderedDict()  # least recently used first
        self._leased: OrderedDict[AdapterKey, None] = OrderedDict()  # the oldest lease first
        self._max_loading = max_loading
        self._wishes = LoadWishes()
        self._to_load: list[AdapterKey] = []
        self._loads: dict[AdapterKey, _Load] = {}
        self._dropped: dict[AdapterKey, None] = {}
        self._typical_bytes = 0
        self._load_s = 0.0
        self._load_seen_s = 0.0

    def __contains__(self, key: AdapterKey) -> bool:
        return key in self._images

    @property
    def lease_s(self) -> float:
        """How long a lease holds: a few times what loads took of late."""
        return min(max(LEASE_MIN_S, LEASE_LOADS * self._load_s), LEASE_MAX_S)

    def expected_load_s(self, now: float) -> float:
        """What loads took of late; bad news fades, or nobody would ever try again."""
        return self._load_s * exp2((self._load_seen_s - now) / LOAD_HALF_LIFE_S)

    def wish(self, key: AdapterKey, n_bytes: int) -> None:
        """Load the image when there is room for it; `n_bytes` is 0 for an adapter never seen."""
        if key in self._loads or key in self._images:
            raise ValueError(f"adapter {key.digest} is in host memory or on its way there")
        self._wishes.add(key, n_bytes)

    def unwish(self, key: AdapterKey) -> None:
        """Nobody waits any more; no news for a load that has begun."""
        self._wishes.discard(key)

    def is_wished(self, key: AdapterKey) -> bool:
        return key in self._wishes

    def prefer(self, key: AdapterKey) -> None:
        """This image comes first, and expired leases make room for it; one image at a time."""
        self._wishes.preferred = key

    def stop_preferring(self, key: AdapterKey | None = None) -> None:
        """The barrier is over; with `key`, only if it was for that adapter."""
        if key in (None, self._wishes.preferred):
            self._wishes.preferred = None

    def start_next(self, now: float) -> tuple[AdapterKey, list[AdapterKey]] | None:
        """Set room aside for the next wish and start its load; also names the images dropped for it.

        Room is set aside for a typical image while the size is unknown; what it really takes is settled in `arrive`.
        None when no load may start now. A wish that finds no room is not overtaken by smaller ones.
        """
        key = self._wishes.head()
        if key is None or len(self._loads) >= self._max_loading:
            return None
        expected = self._wishes.n_bytes(key) or self._typical_bytes
        dropped = self._make_room(expected, now, breaks_leases=key == self._wishes.preferred)
        if dropped is None:
            return None
        self._wishes.grant(key)
        load = self._loads[key] = _Load(Owner(key.tenant, key.digest), expected, now)
        self._move(load, MemoryState.FREE, MemoryState.IN_FLIGHT)
        self._to_load.append(key)
        return key, dropped

    def take_loads(self) -> list[AdapterKey]:
        """The loads to begin now; each is told once."""
        loads, self._to_load = self._to_load, []
        return loads

    def arrive(self, key: AdapterKey, n_bytes: int, now: float) -> list[AdapterKey] | None:
        """The load has ended with an image, idle from now on; names the images dropped for it.

        None when it is larger than expected and the room cannot be made: then the image itself is dropped.
        """
        load = self._end(key)
        took_s = now - load.started
        earlier = LOAD_MEMORY * exp2((self._load_seen_s - now) / LOAD_HALF_LIFE_S) if self._load_s else 0.0
        self._load_s = took_s + earlier * (self._load_s - took_s)
        self._load_seen_s = now
        self._typical_bytes += (n_bytes - self._typical_bytes) // 4 if self._typical_bytes else n_bytes
        dropped = self._make_room(n_bytes, now, breaks_leases=key == self._wishes.preferred)
        if dropped is None:
            self._dropped[key] = None
            self.drops["no_room"] += 1
            return None
        self._dropped.pop(key, None)  # what is meant by it was replaced by this image
        image = self._images[key] = _Image(load.owner, n_bytes, MemoryState.CACHED)
        self._idle[key] = None
        self._move(image, MemoryState.FREE, MemoryState.CACHED)
        return dropped

    def refuse(self, key: AdapterKey) -> None:
        """The load has ended with an image that nobody can use."""
        self._end(key)
        self._dropped[key] = None

    def fail(self, key: AdapterKey) -> None:
        """The load has ended without an image."""
        self._end(key)

    def lease(self, key: AdapterKey, now: float) -> None:
        """A request waits for the image: keep it for the time of a lease; further requests do not prolong it."""
        if key not in self._leased:
            self._images[key].expires = now + self.lease_s
            self._set(key, MemoryState.RESERVED)

    def use(self, key: AdapterKey) -> None:
        """The image is about to be copied to the device: keep it until the copy is done."""
        self._set(key, MemoryState.USED)

    def idle(self, key: AdapterKey) -> None:
        """Nobody needs the image now; it has just been of use."""
        self._set(key, MemoryState.CACHED)

    def drop(self, key: AdapterKey, reason: str) -> None:
        """Give the image up.

        Raises:
            ValueError: it is being copied to the device.
        """
        image = self._images[key]
        if image.state is MemoryState.USED:
            raise ValueError(f"the image of adapter {key.digest} is being copied")
        self._leave(key, image.state)
        del self._images[key]
        self._move(image, image.state, MemoryState.FREE)
        self._dropped[key] = None
        self.drops[reason] += 1

    def take_dropped(self) -> list[AdapterKey]:
        """The adapters whose image must be freed now; each is told once."""
        dropped, self._dropped = self._dropped, {}
        return list(dropped)

    def recount(self) -> dict[MemoryState, int]:
        """Bytes by state, counted from images and loads and not from the ledger."""
        count = dict.fromkeys(MemoryState, 0)
        for image in self._images.values():
            count[image.state] += image.n_bytes
        count[MemoryState.IN_FLIGHT] = sum(load.n_bytes for load in self._loads.values())
        count[MemoryState.FREE] = self.ledger.capacity - sum(count.values())
        return count

    def _make_room(self, n_bytes: int, now: float, *, breaks_leases: bool) -> list[AdapterKey] | None:
        """Drop images until `n_bytes` are free, and name them; drop none when that is impossible."""
        room = self.ledger[MemoryState.FREE] + self.ledger[MemoryState.CACHED]
        expired: list[AdapterKey] = []
        if room < n_bytes and breaks_leases:
            for key in self._leased:
                image = self._images[key]
                if room >= n_bytes or image.expires > now:
                    break
                expired.append(key)
                room += image.n_bytes
        if room < n_bytes:
            return None
        dropped = []
        while self.ledger[MemoryState.FREE] < n_bytes and self._idle:
            dropped.append(next(iter(self._idle)))
            self.drop(dropped[-1], "room")
        for key in expired:
            self.drop(key, "lease_expired")
        return dropped + expired

    def _set(self, key: AdapterKey, state: MemoryState) -> None:
        image = self._images[key]
        self._leave(key, image.state)
        if state is MemoryState.CACHED:
            self._idle[key] = None
        elif state is MemoryState.RESERVED:
            self._leased[key] = None
        if state is not image.state:
            self._move(image, image.state, state)
            image.state = state

    def _leave(self, key: AdapterKey, state: MemoryState) -> None:
        if state is MemoryState.CACHED:
            del self._idle[key]
        elif state is MemoryState.RESERVED:
            del self._leased[key]

    def _end(self, key: AdapterKey) -> _Load:
        load = self._loads.pop(key)
        self._move(load, MemoryState.IN_FLIGHT, MemoryState.FREE)
        return load

    def _move(self, item: _Image | _Load, source: MemoryState, target: MemoryState) -> None:
        if item.n_bytes:
            self.ledger.move(item.n_bytes, item.owner, source=source, target=target)
