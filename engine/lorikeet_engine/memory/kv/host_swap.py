"""Host slots for the blocks of swapped-out requests: which are free, filled, or part of a copy that runs.

    free ──take──▶ filling ──settle──▶ filled ──drain──▶ draining ──settle──▶ free
                      └────────drop────────┼──────────────▶ ┘
                                           └──drop──▶ free

Knows slots and owners only; the bytes lie in host memory that the device side owns.
"""

from __future__ import annotations

from collections.abc import Sequence

from lorikeet_engine.memory.ledger import MemoryState, Owner, PoolLedger


class HostSwap:
    """`n_slots` slots of one block each, with a ledger of their own.

    Invariant: every slot is free, filling, filled or draining; the ledger counts filling and draining as in flight.
    """

    def __init__(self, *, n_slots: int, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.ledger = PoolLedger("swap", n_slots * slot_bytes)
        self._free = list(range(n_slots - 1, -1, -1))
        self._filling: dict[int, Owner] = {}
        self._filled: dict[int, Owner] = {}
        self._draining: dict[int, Owner] = {}

    @property
    def n_free(self) -> int:
        return len(self._free)

    def take(self, n: int, owner: Owner) -> list[int] | None:
        """Slots that a copy is going to fill; None when there are not so many."""
        if n > len(self._free):
            return None
        slots = [self._free.pop() for _ in range(n)]
        self._filling.update(dict.fromkeys(slots, owner))
        self._move(n, owner, MemoryState.FREE, MemoryState.IN_FLIGHT)
        return slots

    def is_filling(self, slots: Sequence[int]) -> bool:
        """Whether the copy into one of the slots has not been told to be done."""
        return bool(self._filling) and any(slot in self._filling for slot in slots)

    def drain(self, slots: Sequence[int]) -> None:
        """A copy is going to read the slots for the last time."""
        for slot in slots:
            owner = self._filled.pop(slot)
            self._draining[slot] = owner
            self._move(1, owner, MemoryState.USED, MemoryState.IN_FLIGHT)

    def drop(self, slots: Sequence[int]) -> None:
        """Nobody needs the slots any more; one that is being filled comes free with the copy."""
        for slot in slots:
            if slot in self._filling:
                self._draining[slot] = self._filling.pop(slot)
            else:
                self._free_one(slot, self._filled.pop(slot), MemoryState.USED)

    def settle(self) -> None:
        """All planned copies are done."""
        for slot, owner in self._filling.items():
            self._filled[slot] = owner
            self._move(1, owner, MemoryState.IN_FLIGHT, MemoryState.USED)
        self._filling.clear()
        for slot, owner in self._draining.items():
            self._free_one(slot, owner, MemoryState.IN_FLIGHT)
        self._draining.clear()

    def recount(self) -> dict[MemoryState, int]:
        """Bytes by state, counted from the slots and not from the ledger."""
        count = dict.fromkeys(MemoryState, 0)
        count[MemoryState.FREE] = len(self._free) * self.slot_bytes
        count[MemoryState.USED] = len(self._filled) * self.slot_bytes
        count[MemoryState.IN_FLIGHT] = (len(self._filling) + len(self._draining)) * self.slot_bytes
        return count

    def audit(self, kept: Sequence[int]) -> None:
        """Raise AssertionError unless the invariant holds and `kept` are the slots that requests will come back for."""
        self.ledger.audit()
        places = [*self._free, *self._filling, *self._filled, *self._draining]
        assert sorted(places) == list(range(self.ledger.capacity // self.slot_bytes)), "a slot is nowhere, or twice"
        assert sorted(kept) == sorted([*self._filling, *self._filled]), "slots are kept for nobody, or lost"

    def _free_one(self, slot: int, owner: Owner, source: MemoryState) -> None:
        self._free.append(slot)
        self._move(1, owner, source, MemoryState.FREE)

    def _move(self, n: int, owner: Owner, source: MemoryState, target: MemoryState) -> None:
        self.ledger.move(n * self.slot_bytes, owner, source=source, target=target)
