"""The ledger catches what would otherwise leak quietly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.memory.ledger import LedgerImbalance, MemoryState, Owner, PoolLedger

ANNA, BEN = Owner("anna", "d1"), Owner("ben")
OWNERS = [ANNA, Owner("anna", "d2"), BEN]
FREE, CACHED, RESERVED = MemoryState.FREE, MemoryState.CACHED, MemoryState.RESERVED
IN_FLIGHT, USED = MemoryState.IN_FLIGHT, MemoryState.USED


def test_states_add_up_to_the_capacity_after_moves() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=FREE, target=RESERVED)
    ledger.move(25, ANNA, source=RESERVED, target=USED)
    ledger.move(10, BEN, source=FREE, target=IN_FLIGHT)
    snapshot = ledger.snapshot(fragmentation=3, external_fragmentation=4, shared=5)
    assert (snapshot.used, snapshot.reserved, snapshot.in_flight, snapshot.cached, snapshot.free) == (25, 35, 10, 0, 30)
    assert (snapshot.fragmentation, snapshot.external_fragmentation, snapshot.shared) == (3, 4, 5)


def test_held_bytes_are_charged_to_tenant_and_adapter() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=FREE, target=USED)
    ledger.move(10, BEN, source=FREE, target=USED)
    assert ledger.snapshot().by_tenant == {"anna": 60, "ben": 10}
    assert ledger.held_by_owner() == {ANNA: 60, BEN: 10}


def test_an_owner_disappears_with_its_last_byte() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=FREE, target=USED)
    ledger.move(60, ANNA, source=USED, target=FREE)
    assert ledger.snapshot().by_tenant == {}


def test_what_is_cached_is_held_but_not_in_use() -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=FREE, target=USED)
    ledger.move(20, ANNA, source=USED, target=CACHED)
    assert ledger.in_use_of("anna") == 40
    assert ledger.snapshot().by_tenant == {"anna": 60}
    assert ledger.in_use_of("ben") == 0


def test_taking_more_than_a_state_holds_is_an_imbalance() -> None:
    ledger = PoolLedger("kv", 100)
    with pytest.raises(LedgerImbalance, match="kv"):
        ledger.move(101, ANNA, source=FREE, target=USED)


def test_moving_a_negative_amount_is_an_imbalance() -> None:
    ledger = PoolLedger("kv", 100)
    with pytest.raises(LedgerImbalance, match="cannot leave free"):
        ledger.move(-1, ANNA, source=FREE, target=USED)


@pytest.mark.parametrize("target", [FREE, CACHED])
def test_freeing_in_another_owners_name_is_an_imbalance(target: MemoryState) -> None:
    ledger = PoolLedger("kv", 100)
    ledger.move(60, ANNA, source=FREE, target=USED)
    with pytest.raises(LedgerImbalance):
        ledger.move(60, BEN, source=USED, target=target)


def test_every_state_has_a_word() -> None:
    assert [state.label for state in MemoryState] == ["free", "cached", "reserved", "in_flight", "used"]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 40), st.sampled_from(OWNERS), st.sampled_from(MemoryState), st.sampled_from(MemoryState)
        )
    )
)
def test_a_ledger_equals_a_plain_count_by_owner_and_state(
    moves: list[tuple[int, Owner, MemoryState, MemoryState]],
) -> None:
    ledger = PoolLedger("kv", 100)
    count: Counter[tuple[Owner | None, MemoryState]] = Counter({(None, FREE): 100})
    for n, owner, source, target in moves:
        origin = (None if source is FREE else owner, source)
        if count[origin] >= n and source is not target:
            ledger.move(n, owner, source=source, target=target)
            count[origin] -= n
            count[(None if target is FREE else owner, target)] += n
            ledger.audit()
    for state in MemoryState:
        assert ledger[state] == sum(n for (_, s), n in count.items() if s is state)
    for tenant in ("anna", "ben"):
        in_use = sum(n for (o, s), n in count.items() if o and o.tenant == tenant and s not in (FREE, CACHED))
        assert ledger.in_use_of(tenant) == in_use
