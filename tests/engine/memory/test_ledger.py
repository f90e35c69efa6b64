"""The ledger catches what would otherwise leak quietly."""

from __future__ import annotations

import pytest

from lorikeet_engine.memory.ledger import LedgerImbalance, MemoryState, Owner, PoolLedger

ANNA, BEN = Owner("anna", "d1"), Owner("ben")


def test_states_add_up_to_the_capacity_after_moves() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=MemoryState.FREE, target=MemoryState.RESERVED)
    ledger.move(25, ANNA, source=MemoryState.RESERVED, target=MemoryState.USED)
    ledger.move(10, BEN, source=MemoryState.FREE, target=MemoryState.IN_FLIGHT)
    snapshot = ledger.snapshot(fragmentation=3)
    assert (snapshot.used, snapshot.reserved, snapshot.in_flight, snapshot.cached, snapshot.free) == (25, 35, 10, 0, 30)
    assert snapshot.fragmentation == 3


def test_held_bytes_are_charged_to_tenant_and_adapter() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=MemoryState.FREE, target=MemoryState.USED)
    ledger.move(10, BEN, source=MemoryState.FREE, target=MemoryState.USED)
    assert ledger.snapshot().by_tenant == {"anna": 60, "ben": 10}
    assert ledger.snapshot().by_adapter == {"d1": 60, "base": 10}


def test_an_owner_disappears_with_its_last_byte() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=MemoryState.FREE, target=MemoryState.USED)
    ledger.move(60, ANNA, source=MemoryState.USED, target=MemoryState.FREE)
    assert ledger.snapshot().by_tenant == {}


def test_taking_more_than_a_state_holds_is_an_imbalance() -> None:
    ledger = PoolLedger("kv", 100)
    with pytest.raises(LedgerImbalance, match="kv"):
        ledger.move(101, ANNA, source=MemoryState.FREE, target=MemoryState.USED)


def test_freeing_in_another_owners_name_is_an_imbalance() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=MemoryState.FREE, target=MemoryState.USED)
    with pytest.raises(LedgerImbalance):
        ledger.move(60, BEN, source=MemoryState.USED, target=MemoryState.FREE)
