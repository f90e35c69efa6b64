"""Which idle adapter leaves the arena first: GreedyDual-Size-Frequency, or least recently used as its reference.

    score = clock + f * reload seconds / grains        the smallest leaves; clock = score of the last that left
    f     = hits, halved every 60 s + 2 * requests that wait for it + cached KV blocks / 16

An adapter's score is fixed when it is offered and whenever what it counts changes; time alone does not reorder it.
What nobody touches grows old because the clock rises. Knows scores and sizes only: who is idle, and what leaving
means, is `residency`'s.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import exp2
from typing import Literal, NamedTuple

from lorikeet_engine.identity import AdapterKey

EvictionPolicy = Literal["gdsf", "lru"]

LOAD_LATENCY_S = 0.005  # what does not grow with the image: opening, asking, starting
HALF_LIFE_S = 60.0
WAITING_WEIGHT = 2.0
PREFIX_WEIGHT = 1 / 16  # cached prefixes are worth nothing while their adapter is away


@dataclass(frozen=True, slots=True)
class ReloadCost:
    """What it takes to bring an adapter back: a copy from host memory, and before it perhaps a read from disk."""

    place_seconds_per_byte: float = 1 / 20e9
    load_seconds_per_byte: float = 1 / 500e6  # read, verify and pack
    load_latency_s: float = LOAD_LATENCY_S

    def seconds(self, n_bytes: int, *, from_host: bool) -> float:
        place = n_bytes * self.place_seconds_per_byte
        return place if from_host else place + n_bytes * self.load_seconds_per_byte + self.load_latency_s


@dataclass(slots=True)
class Usage:
    """How often and when an adapter was used. `serial` orders uses; `clock` is the order's clock at the last one."""

    hits: float = 0.0
    hit_at: float = 0.0
    serial: int = 0
    clock: float = 0.0

    def decayed(self, now: float) -> float:
        return self.hits * exp2(-max(now - self.hit_at, 0.0) / HALF_LIFE_S)


class Demand(NamedTuple):
    """What speaks for keeping an adapter besides its use so far."""

    waiting: int
    n_prefix_blocks: int
    from_host: bool  # its image is still in host memory


class _Candidate(NamedTuple):
    score: float
    ticket: int
    key: AdapterKey
    n_grains: int


class EvictionOrder:
    """The idle adapters by score. Offering, withdrawing and taking one cost O(log n), amortised.

    A heap with stale entries: an entry counts only while it is the newest one of its adapter.
    """

    def __init__(self, policy: EvictionPolicy, cost: ReloadCost) -> None:
        self.n_grains = 0  # of all that could leave
        self.clock = 0.0
        self._policy = policy
        self._cost = cost
        self._newest: dict[AdapterKey, _Candidate] = {}
        self._heap: list[_Candidate] = []
        self._ticket = 0
        self._serial = 0

    def __contains__(self, key: AdapterKey) -> bool:
        return key in self._newest

    def __len__(self) -> int:
        return len(self._newest)

    def touch(self, usage: Usage) -> None:
        """The adapter was used just now."""
        self._serial += 1
        usage.serial = self._serial
        usage.clock = self.clock

    def hit(self, usage: Usage, now: float) -> None:
        """One more request begins to use the adapter."""
        usage.hits = usage.decayed(now) + 1.0
        usage.hit_at = now
        self.touch(usage)

    def score(self, usage: Usage, demand: Demand, *, n_grains: int, n_bytes: int, now: float) -> float:
        if self._policy == "lru":
            return float(usage.serial)
        frequency = usage.decayed(now) + WAITING_WEIGHT * demand.waiting + PREFIX_WEIGHT * demand.n_prefix_blocks
        return usage.clock + frequency * self._cost.seconds(n_bytes, from_host=demand.from_host) / n_grains

    def offer(self, key: AdapterKey, n_grains: int, score: float) -> None:
        """The adapter may leave from now on; or it may already, and its score has changed."""
        self.withdraw(key)
        self._ticket += 1
        candidate = _Candidate(score, self._ticket, key, n_grains)
        self._newest[key] = candidate
        self.n_grains += n_grains
        heapq.heappush(self._heap, candidate)
        if len(self._heap) > 2 * len(self._newest) + 64:  # mostly stale entries
            self._heap = list(self._newest.values())
            heapq.heapify(self._heap)

    def withdraw(self, key: AdapterKey) -> None:
        """The adapter must stay; no news for one that was not offered."""
        candidate = self._newest.pop(key, None)
        if candidate:
            self.n_grains -= candidate.n_grains

    def take(self, n_grains: int) -> list[AdapterKey]:
        """Remove and return adapters of `n_grains` together, lowest score first; the caller knows there are enough.

        One that turned out not to be needed, because a later one is large, is spared, the highest score first.
        """
        if n_grains > self.n_grains:
            raise ValueError(f"{n_grains} grains are to leave, {self.n_grains} may")
        taken: list[_Candidate] = []
        surplus = -n_grains
        while surplus < 0:
            candidate = heapq.heappop(self._heap)
            if self._newest.get(candidate.key) is candidate:
                taken.append(candidate)
                surplus += candidate.n_grains
        leaving = []
        for candidate in reversed(taken):
            if candidate.n_grains <= surplus:
                surplus -= candidate.n_grains
                heapq.heappush(self._heap, candidate)
            else:
                leaving.append(candidate)
                self.withdraw(candidate.key)
                self.clock = max(self.clock, candidate.score)
        return [candidate.key for candidate in reversed(leaving)]
