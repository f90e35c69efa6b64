"""Adapters that somebody wants in host memory before any request does: alias targets that are about to be switched to.

A warm adapter waits like one more request that never starts, so it shares the load with requests, takes its turn among
them, and is loaded again if its image found no room. It ends when the image is there, the load failed, or the adapter
is retired.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from lorikeet_engine.errors import EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Residency


class WarmOutcome(NamedTuple):
    """How warming an adapter has ended for those who asked; None: its image is in host memory or on the device.

    `tickets` are theirs. Who asks again after a retirement has cut the warming short has part in the next outcome.
    """

    key: AdapterKey
    error: EngineError | None
    tickets: tuple[Hashable, ...] = ()


class Warming:
    """The adapters being warmed, once each however often they are asked for."""

    def __init__(self, residency: AdapterResidency) -> None:
        self._residency = residency
        self._tickets: dict[AdapterKey, list[Hashable]] = {}

    def __contains__(self, key: AdapterKey) -> bool:
        return key in self._tickets

    def __len__(self) -> int:
        return len(self._tickets)

    def start(self, key: AdapterKey, now: float, *tickets: Hashable) -> None:
        """Put the adapter into service if it was being retired, and load it if need be; see `arrived`."""
        self._residency.restore(key)
        if key not in self._tickets:
            self._tickets[key] = []
            self._residency.want(key, now)
        self._tickets[key] += tickets

    def arrived(self) -> list[WarmOutcome]:
        """Those that are there; told once."""
        there = [key for key in self._tickets if self._residency.state(key) not in (None, Residency.LOADING)]
        return [outcome for key in there for outcome in self.end(key, None)]

    def end(self, key: AdapterKey, error: EngineError | None) -> list[WarmOutcome]:
        """Nobody waits for it this way any more; nothing to tell if nobody did."""
        if key not in self._tickets:
            return []
        tickets = tuple(self._tickets.pop(key))
        self._residency.unwant(key)
        return [WarmOutcome(key, error, tickets)]
