"""One ledger for each scarce pool: every byte is in exactly one state, and has an owner while it is held.

The five states are counted independently; none is derived from the others, so that `check` can catch a leak.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from lorikeet_engine.ledger_snapshot import LedgerSnapshot


class MemoryState(StrEnum):
    """Where a byte of a pool can be."""

    FREE = "free"
    RESERVED = "reserved"  # promised to a running request, not handed out yet
    IN_FLIGHT = "in_flight"  # being copied to or from
    USED = "used"
    CACHED = "cached"  # holds something worth keeping that nobody uses now; evictable


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a held byte is charged to; `adapter` is a digest, empty for the base model."""

    tenant: str
    adapter: str = ""


class LedgerImbalance(AssertionError):
    """A pool's states do not add up to its capacity, or one went below zero: always a bug of ours."""


class PoolLedger:
    """Capacity of one pool, by state and by owner.

    Invariant: capacity = used + reserved + in flight + cached + free, each ≥ 0, after every `move`; and what the
    owners hold adds up to everything that is not free.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._bytes = dict.fromkeys(MemoryState, 0)
        self._bytes[MemoryState.FREE] = capacity
        self._held: defaultdict[Owner, int] = defaultdict(int)

    def __getitem__(self, state: MemoryState) -> int:
        return self._bytes[state]

    def move(self, n_bytes: int, owner: Owner, *, source: MemoryState, target: MemoryState) -> None:
        """Move `n_bytes` of `owner` from one state to another.

        Raises:
            LedgerImbalance: `source` does not hold that much.
        """
        self._bytes[source] -= n_bytes
        self._bytes[target] += n_bytes
        if source is MemoryState.FREE:
            self._held[owner] += n_bytes
        if target is MemoryState.FREE:
            self._held[owner] -= n_bytes
            if not self._held[owner]:
                del self._held[owner]
        self.check()

    def check(self) -> None:
        """Raise `LedgerImbalance` unless the invariant holds."""
        if sum(self._bytes.values()) != self.capacity or min(self._bytes.values()) < 0:
            raise LedgerImbalance(f"{self.name}: {self._bytes} do not add up to {self.capacity}")
        held = sum(self._held.values())
        if held != self.capacity - self._bytes[MemoryState.FREE] or min(self._held.values(), default=0) < 0:
            raise LedgerImbalance(f"{self.name}: owners hold {held}, states say {self._bytes}")

    def snapshot(self, *, fragmentation: int = 0) -> LedgerSnapshot:
        by_tenant: defaultdict[str, int] = defaultdict(int)
        by_adapter: defaultdict[str, int] = defaultdict(int)
        for owner, held in self._held.items():
            by_tenant[owner.tenant] += held
            by_adapter[owner.adapter or "base"] += held
        return LedgerSnapshot(
            name=self.name,
            capacity=self.capacity,
            used=self._bytes[MemoryState.USED],
            reserved=self._bytes[MemoryState.RESERVED],
            in_flight=self._bytes[MemoryState.IN_FLIGHT],
            cached=self._bytes[MemoryState.CACHED],
            free=self._bytes[MemoryState.FREE],
            fragmentation=fragmentation,
            by_tenant=dict(by_tenant),
            by_adapter=dict(by_adapter),
        )
