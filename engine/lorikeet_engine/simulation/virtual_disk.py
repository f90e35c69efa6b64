"""The clock of a simulation, and a disk that reads adapters one after another at a fixed bandwidth."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from lorikeet_engine.cost import load_seconds
from lorikeet_engine.errors import EngineError
from lorikeet_engine.identity import AdapterKey


@dataclass(slots=True)
class VirtualClock:
    """Seconds since the simulation began; whoever moves it is the world."""

    now: float = 0.0


@dataclass(frozen=True, slots=True)
class VirtualImage:
    """An adapter in host memory: its size is all there is."""

    n_grains: int


@dataclass(frozen=True, slots=True)
class VirtualLoad:
    """The end of one load."""

    key: AdapterKey
    image: VirtualImage
    error: EngineError | None = None


@dataclass(slots=True)
class VirtualDisk:
    """The loader of a simulation.

    Attributes:
        n_grains: size of every adapter.
        latency_s: of one load, beside its bytes: opening, verifying, packing.
    """

    clock: VirtualClock
    n_grains: Mapping[AdapterKey, int]
    grain_bytes: int
    bandwidth: float
    latency_s: float = 0.002
    n_loads: int = 0
    n_bytes: int = 0
    _reading: deque[tuple[float, AdapterKey]] = field(default_factory=deque)
    _free_at: float = 0.0

    def start(self, key: AdapterKey) -> None:
        n_bytes = self.n_grains[key] * self.grain_bytes
        begin = max(self.clock.now, self._free_at)
        self._free_at = begin + self.latency_s + load_seconds(n_bytes, self.bandwidth)
        self._reading.append((self._free_at, key))
        self.n_loads += 1
        self.n_bytes += n_bytes

    def poll(self) -> list[VirtualLoad]:
        loads: list[VirtualLoad] = []
        while self._reading and self._reading[0][0] <= self.clock.now:
            _, key = self._reading.popleft()
            loads.append(VirtualLoad(key, VirtualImage(self.n_grains[key])))
        return loads

    def next_at(self) -> float | None:
        """When the next load ends."""
        return self._reading[0][0] if self._reading else None
