"""What the engine remembers of one adapter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from math import exp2, log, log2

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.eviction import Usage

HOT_PER_MINUTE = 0.5  # requests that began on it: an adapter in use, whether it has any now
LEAST_NAMED, MOST_NAMED = 100, 1000

KnownAdapter = tuple[AdapterKey, str, int, int, int]  # its state in a word, bytes, running and waiting requests

COLD = "cold"
HEAT_HALF_LIFE_S = 180.0
HEAT_PER_MINUTE = 60.0 * log(2.0) / HEAT_HALF_LIFE_S  # one request a second keeps half-life / ln 2 of them counted


class Residency(StrEnum):
    """How far an adapter has come; one that is only waited for has no state."""

    LOADING = "loading"
    HOST = "host"
    PLACING = "placing"
    RESIDENT = "resident"
    DRAINING = "draining"  # placing or resident, and nothing new may start on it


@dataclass(slots=True)
class Heat:
    """How much an adapter is asked for: a count of requests of which what is long ago counts less."""

    count: float = 0.0
    counted_s: float = 0.0
    rank: float = float("-inf")  # orders heats as `per_minute` does at any later time

    def add(self, now: float) -> None:
        """One more request started."""
        self.count, self.counted_s = self._decayed(now) + 1.0, max(now, self.counted_s)
        self.rank = log2(self.count) + self.counted_s / HEAT_HALF_LIFE_S

    @staticmethod
    def rank_of(per_minute: float, now: float) -> float:
        """Whose rank is higher is hotter now."""
        return log2(per_minute / HEAT_PER_MINUTE) + now / HEAT_HALF_LIFE_S

    def per_minute(self, now: float) -> float:
        return self._decayed(now) * HEAT_PER_MINUTE

    def _decayed(self, now: float) -> float:
        return self.count * exp2(-max(now - self.counted_s, 0.0) / HEAT_HALF_LIFE_S)


@dataclass(slots=True)
class AdapterEntry:
    """`state` is None while the adapter is in neither tier; it is never DRAINING, which `draining` says.

    `census` counts the entries by `word` as they change; one that is cold is not in it.
    """

    census: Counter[str] = field(repr=False)
    n_grains: int = 0  # 0 until an image has been seen
    pins: int = 0  # running requests
    waiting: int = 0  # requests that wait for it
    is_fresh: bool = False  # the image was read from disk for whoever waits
    usage: Usage = field(default_factory=Usage)
    heat: Heat = field(default_factory=Heat)
    _state: Residency | None = None
    _draining: bool = False
    _retired: bool = False

    @property
    def state(self) -> Residency | None:
        return self._state

    @state.setter
    def state(self, state: Residency | None) -> None:
        self._become(state, self._draining, self._retired)

    @property
    def draining(self) -> bool:
        return self._draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._become(self._state, draining, self._retired)

    @property
    def retired(self) -> bool:
        return self._retired

    @retired.setter
    def retired(self, retired: bool) -> None:
        self._become(self._state, self._draining, retired)

    def _become(self, state: Residency | None, draining: bool, retired: bool) -> None:
        if self._state:
            self.census[self.word] -= 1
        self._state, self._draining, self._retired = state, draining, retired
        if state:
            self.census[self.word] += 1

    @property
    def in_arena(self) -> bool:
        return self.state is Residency.PLACING or self.state is Residency.RESIDENT

    @property
    def is_idle(self) -> bool:
        return self.state is Residency.RESIDENT and not self.pins

    @property
    def is_needed(self) -> bool:
        """Whether a request, a load or a copy still counts on the entry."""
        return bool(self.pins or self.waiting) or self.state in (Residency.LOADING, Residency.PLACING)

    @property
    def word(self) -> str:
        """Its state for people: "cold" while it waits for its load, draining also while it is being retired."""
        if self.in_arena and (self.draining or self.retired):
            return Residency.DRAINING.value
        return self.state.value if self.state else COLD

    def is_consistent(self, *, in_room: bool, in_order: bool, in_host: bool, is_wished: bool) -> bool:
        """Whether the entry says what the arena, the eviction order and the host cache say."""
        is_cold = self.state is None
        return (
            self.in_arena == in_room
            and self.is_idle == in_order
            and (in_host or self.state not in (Residency.HOST, Residency.PLACING))
            and not (in_host and (is_cold or self.state is Residency.LOADING))
            and (not is_wished or (is_cold and self.waiting > 0))
            and (not is_cold or self.waiting > 0)
            and (self.in_arena or not (self.pins or self.draining))
        )


class AdapterEntries(dict[AdapterKey, AdapterEntry]):
    """Every adapter that the engine knows."""

    def __init__(self) -> None:
        super().__init__()
        self._census: Counter[str] = Counter()

    def add(self, key: AdapterKey) -> AdapterEntry:
        entry = self[key] = AdapterEntry(self._census)
        return entry

    def chosen(self, now: float | None, only: AdapterKey | None) -> Iterable[tuple[AdapterKey, AdapterEntry]]:
        """All, or `only` one, or those in demand."""
        if only is not None:
            return [(only, self[only])] if only in self else []
        return self.items() if now is None else self._in_demand(now)

    def _in_demand(self, now: float) -> list[tuple[AdapterKey, AdapterEntry]]:
        """Those that requests run on, wait for or began on of late, `MOST_NAMED` at most; if few are, some more."""
        hot = Heat.rank_of(HOT_PER_MINUTE, now)
        wanted = [
            (entry.pins + entry.waiting, entry.heat.rank, key)
            for key, entry in self.items()
            if entry.pins or entry.waiting or entry.heat.rank > hot
        ]
        chosen = [key for _, _, key in sorted(wanted, reverse=True)[:MOST_NAMED]]
        if len(chosen) < LEAST_NAMED:
            known = set(chosen)
            newest = (key for key in reversed(self) if key not in known)
            chosen += islice(newest, LEAST_NAMED - len(chosen))
        return [(key, self[key]) for key in chosen]

    def by_state(self) -> dict[str, int]:
        """How many there are in each state, by `AdapterEntry.word`; counted as they change, not by looking at all."""
        return {COLD: len(self) - self._census.total()} | {word: self._census[word] for word in Residency}
