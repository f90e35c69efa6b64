"""One ledger for each scarce pool: every byte is in exactly one state, and has an owner while it is held.

The five states are counted independently; none is derived from the others, so that `audit` can catch a leak.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from lorikeet_engine.ledger_snapshot import LedgerSnapshot


class MemoryState(IntEnum):
    """Where a byte of a pool can be; from RESERVED on it is in use, that is, nobody else can have it."""

    FREE = 0
    CACHED = 1  # holds something worth keeping that nobody uses now; evictable
    RESERVED = 2  # promised to a running request, not handed out yet
    IN_FLIGHT = 3  # being copied to or from
    USED = 4

    @property
    def label(self) -> str:
        """The word for it in metrics and on pages."""
        return self.name.lower()


_FREE, _IN_USE, _USED = int(MemoryState.FREE), int(MemoryState.RESERVED), int(MemoryState.USED)


class Owner(NamedTuple):
    """Who a held byte is charged to; `adapter` is a digest, empty for the base model."""

    tenant: str
    adapter: str = ""


class LedgerImbalance(AssertionError):
    """A pool's states do not add up to its capacity, or one went below zero: always a bug of ours."""


class PoolLedger:
    """Capacity of one pool, by state and by owner.

    Invariant: capacity = used + reserved + in flight + cached + free, each ≥ 0; what the owners hold adds up to
    everything that is not free, and what the tenants have in use to everything that is neither free nor cached.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._bytes = [0] * len(MemoryState)
        self._bytes[_FREE] = capacity
        self._held: dict[str, dict[str, int]] = {}  # by tenant and adapter, so that tenants are quick to add up
        self._in_use: dict[str, int] = {}

    def __getitem__(self, state: MemoryState) -> int:
        return self._bytes[state]

    @property
    def held_or_promised(self) -> int:
        """Bytes that running requests hold, or will have when they ask: used and reserved ones."""
        return self._bytes[_USED] + self._bytes[_IN_USE]

    def move(self, n_bytes: int, owner: Owner, *, source: MemoryState, target: MemoryState) -> None:
        """Move `n_bytes` of `owner` from one state to another.

        Raises:
            LedgerImbalance: `source`, or the owner, does not hold that much.
        """
        if not n_bytes:
            return
        counts = self._bytes
        left = counts[source] - n_bytes
        if left < 0 or n_bytes < 0:
            raise LedgerImbalance(
                f"{self.name}: {n_bytes} bytes cannot leave {source.label}, it holds {counts[source]}"
            )
        counts[source] = left
        counts[target] += n_bytes
        if source == _FREE:
            self._hold(owner, n_bytes)
        elif target == _FREE:
            self._hold(owner, -n_bytes)
        if source < _IN_USE:
            if target >= _IN_USE:
                self._charge(self._in_use, owner.tenant, n_bytes)
        elif target < _IN_USE:
            self._charge(self._in_use, owner.tenant, -n_bytes)

    def in_use_of(self, tenant: str) -> int:
        """Bytes of a tenant that nobody else can have: used, reserved or in flight."""
        return self._in_use.get(tenant, 0)

    def audit(self) -> None:
        """Raise `LedgerImbalance` unless the invariant holds."""
        counts = self._bytes
        if sum(counts) != self.capacity or min(counts) < 0:
            raise LedgerImbalance(f"{self.name}: {counts} do not add up to {self.capacity}")
        by_owner = self.held_by_owner()
        held, in_use = sum(by_owner.values()), sum(self._in_use.values())
        if held != self.capacity - counts[_FREE] or min(by_owner.values(), default=1) <= 0:
            raise LedgerImbalance(f"{self.name}: owners hold {held}, states say {counts}")
        if in_use != sum(counts[_IN_USE:]) or min(self._in_use.values(), default=1) <= 0:
            raise LedgerImbalance(f"{self.name}: tenants use {in_use}, states say {counts}")

    def held_by_owner(self) -> dict[Owner, int]:
        """Bytes that are not free, by whom they are charged to."""
        return {
            Owner(tenant, adapter): held for tenant, held_by in self._held.items() for adapter, held in held_by.items()
        }

    def snapshot(self, *, fragmentation: int = 0, external_fragmentation: int = 0, shared: int = 0) -> LedgerSnapshot:
        counts = self._bytes
        return LedgerSnapshot(
            name=self.name,
            capacity=self.capacity,
            used=counts[MemoryState.USED],
            reserved=counts[MemoryState.RESERVED],
            in_flight=counts[MemoryState.IN_FLIGHT],
            cached=counts[MemoryState.CACHED],
            free=counts[MemoryState.FREE],
            fragmentation=fragmentation,
            by_tenant={tenant: sum(held_by.values()) for tenant, held_by in self._held.items()},
            shared=shared,
            external_fragmentation=external_fragmentation,
        )

    def _hold(self, owner: Owner, n_bytes: int) -> None:
        tenant, adapter = owner
        held_by = self._held.get(tenant)
        if held_by is None:
            held_by = self._held[tenant] = {}
        balance = held_by.get(adapter, 0) + n_bytes
        if balance > 0:
            held_by[adapter] = balance
        else:
            self._charge(held_by, adapter, n_bytes)
            if not held_by:
                del self._held[tenant]

    def _charge(self, account: dict[str, int], name: str, n_bytes: int) -> None:
        """Change what `name` holds; an account that is empty disappears."""
        balance = account.get(name, 0) + n_bytes
        if balance > 0:
            account[name] = balance
        elif balance:
            raise LedgerImbalance(f"{self.name}: {name} gives back {-n_bytes} bytes but holds {balance - n_bytes}")
        else:
            del account[name]
