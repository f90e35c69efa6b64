"""Adapters that somebody wants in host memory before any request does: alias targets that are about to be switched to.

A warm adapter waits like one more request that never starts, so it shares the load with requests, takes its turn among
them, and is loaded again if its image found no room. It ends when the image is there, the load failed, or the adapter
is retired.
"""

from __future__ import annotations

from typing import NamedTuple

from lorikeet_engine.errors import EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Residency


class WarmOutcome(NamedTuple):
    """How warming an adapter has ended; None: its image is in host memory or on the device."""

    key: AdapterKey
    error: EngineError | None


class Warming:
    """The adapters being warmed, once each however often they are asked for."""

    def __init__(self, residency: AdapterResidency) -> None:
        self._residency = residency
        self._keys: dict[AdapterKey, None] = {}

    def __contains__(self, key: AdapterKey) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def start(self, key: AdapterKey, now: float) -> None:
        """Put the adapter into service if it was being retired, and load it if need be; see `arrived`."""
        self._residency.restore(key)
        if key not in self._keys:
            self._keys[key] = None
            self._residency.want(key, now)

    def arrived(self) -> list[WarmOutcome]:
        """Those that are there; told once."""
        there = [key for key in self._keys if self._residency.state(key) not in (None, Residency.LOADING)]
        return [outcome for key in there for outcome in self.end(key, None)]

    def end(self, key: AdapterKey, error: EngineError | None) -> list[WarmOutcome]:
        """Nobody waits for it this way any more; nothing to tell if nobody did."""
        if key not in self._keys:
            return []
        del self._keys[key]
        self._residency.unwant(key)
        return [WarmOutcome(key, error)]
