"""Leaving for host memory and coming back: nothing is lost, nothing is reused while a copy still needs it."""

from __future__ import annotations

import pytest

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.kv.host_swap import HostSwap
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import PrefixChain, PrefixHit, prefix_root
from lorikeet_engine.memory.ledger import MemoryState, Owner

BLOCK = 4
ANNA = Owner("anna", "d1")
FREE, CACHED, IN_FLIGHT, USED = MemoryState.FREE, MemoryState.CACHED, MemoryState.IN_FLIGHT, MemoryState.USED


def manager(*, n_blocks: int = 9, n_host_slots: int = 4, enable_prefix_caching: bool = True) -> KvManager:
    return KvManager(
        n_blocks=n_blocks,
        block_size=BLOCK,
        block_bytes=1,
        n_host_slots=n_host_slots,
        enable_prefix_caching=enable_prefix_caching,
    )


def chain(tokens: list[int]) -> PrefixChain:
    made = PrefixChain(
        prefix_root(model="m", kv_format="bf16", block_size=BLOCK, tenant="anna", salt=b"", adapter="d1"), BLOCK
    )
    made.extend(tokens, len(tokens))
    return made


def run(kv: KvManager, name: str, tokens: list[int]) -> tuple[int, ...]:
    keys = chain(tokens)
    kv.admit(name, ANNA, len(tokens), keys, kv.lookup(keys, len(tokens)))
    table = kv.grow(name, len(tokens))
    kv.commit(name, len(tokens), tokens)
    assert table is not None
    return table


def test_blocks_of_a_swapped_request_are_in_flight_until_the_copy_is_done() -> None:
    kv = manager()
    table = run(kv, "a", list(range(10)))
    copies = kv.swap_out("a", 10)
    assert copies is not None
    assert {block for block, _ in copies} == set(table)
    assert (kv.n_in_flight, kv.n_available) == (3, 5)
    assert kv.swap_ledger[IN_FLIGHT] == 3
    kv.finish_copies()
    assert (kv.n_in_flight, kv.n_available) == (0, 8)
    assert (kv.ledger[CACHED], kv.ledger[FREE]) == (2, 6), "full blocks can still be found, the tail is clean"
    assert kv.swap_ledger[USED] == 3
    kv.audit()


def test_blocks_that_were_grown_but_not_computed_are_not_copied() -> None:
    kv = manager()
    run(kv, "a", list(range(5)))
    kv.grow("a", 12)
    copies = kv.swap_out("a", 5)
    assert copies is not None
    assert len(copies) == 2
    assert kv.n_available == kv.n_usable - 2


def test_a_request_comes_back_sharing_what_is_found_and_copying_the_rest() -> None:
    kv = manager()
    table = run(kv, "a", list(range(10)))
    kv.swap_out("a", 10)
    kv.finish_copies()
    assert kv.n_needed_to_return("a", 12) == 3
    back = kv.swap_in("a", 12)
    assert back is not None
    assert back.n_computed == 10
    assert len(back.copies) == 1
    assert kv.block_tables()["a"][:2] == table[:2]
    assert kv.swap_ledger[FREE] == 3
    kv.finish_copies()
    assert kv.swap_ledger[FREE] == 4
    kv.audit()


def test_a_request_without_cached_blocks_is_copied_back_whole() -> None:
    kv = manager(enable_prefix_caching=False)
    run(kv, "a", list(range(10)))
    kv.swap_out("a", 10)
    kv.finish_copies()
    back = kv.swap_in("a", 10)
    assert back is not None
    assert (back.n_computed, len(back.copies)) == (10, 3)
    kv.audit()


def test_from_the_first_lost_block_on_everything_is_computed_again() -> None:
    kv, tokens = manager(), list(range(14))
    run(kv, "a", tokens[:6])
    run(kv, "b", tokens)
    copies = kv.swap_out("b", 14)
    assert copies is not None
    assert len(copies) == 3, "the block that it shares with the other is dropped, to be looked up again"
    kv.finish_copies()
    kv.release("a")
    kv.purge(AdapterKey("anna", "d1"))
    back = kv.swap_in("b", 14)
    assert back == (0, ())
    assert kv.swap_ledger[FREE] == 4
    kv.audit()


def test_a_shared_block_without_a_key_is_copied_because_it_could_not_be_found_again() -> None:
    kv = manager(enable_prefix_caching=False)
    run(kv, "a", list(range(8)))
    assert kv.fork("a", "b", ANNA, 8, 9) == ()
    copies = kv.swap_out("b", 8)
    assert copies is not None
    assert len(copies) == 2
    assert kv.n_in_flight == 0, "the parent still holds the blocks"
    kv.audit()


def test_a_full_host_pool_refuses_and_changes_nothing() -> None:
    kv = manager(n_host_slots=2)
    run(kv, "a", list(range(10)))
    before = kv.recount()
    assert kv.swap_out("a", 10) is None
    assert kv.recount() == before
    assert "a" in kv.block_tables()
    kv.audit()


def test_nobody_comes_back_before_the_copy_out_is_done() -> None:
    kv = manager(enable_prefix_caching=False)
    run(kv, "a", list(range(6)))
    kv.swap_out("a", 6)
    assert kv.swap_in("a", 8) is None
    kv.finish_copies()
    assert kv.swap_in("a", 8) is not None


def test_nobody_leaves_before_the_copy_in_is_done() -> None:
    kv = manager(enable_prefix_caching=False)
    run(kv, "a", list(range(6)))
    kv.swap_out("a", 6)
    kv.finish_copies()
    kv.swap_in("a", 8)
    assert kv.swap_out("a", 6) is None
    kv.finish_copies()
    assert kv.swap_out("a", 6) is not None


@pytest.mark.parametrize("done", [False, True])
def test_a_request_that_ends_in_host_memory_leaves_nothing_behind(done: bool) -> None:
    kv = manager()
    run(kv, "a", list(range(10)))
    kv.swap_out("a", 10)
    if done:
        kv.finish_copies()
    kv.release("a")
    assert (kv.swap_ledger[FREE] == 4) == done, "a slot that is being filled is nobody's yet"
    kv.audit()
    kv.finish_copies()
    assert kv.swap_ledger[FREE] == 4
    assert kv.n_available == kv.n_usable
    kv.audit()


def test_a_request_that_ends_while_it_is_copied_back_keeps_its_blocks_from_others_until_then() -> None:
    kv = manager(enable_prefix_caching=False)
    run(kv, "a", list(range(8)))
    kv.swap_out("a", 8)
    kv.finish_copies()
    kv.swap_in("a", 8)
    kv.release("a")
    assert (kv.n_in_flight, kv.n_available) == (2, kv.n_usable - 2)
    kv.audit()
    kv.finish_copies()
    assert kv.n_available == kv.n_usable


def test_a_block_on_its_way_out_can_be_shared_again_and_stays() -> None:
    kv, tokens = manager(), list(range(10))
    table = run(kv, "a", tokens)
    kv.swap_out("a", 10)
    assert run(kv, "b", tokens)[:2] == table[:2]
    kv.audit()
    kv.finish_copies()
    assert kv.block_tables()["b"][:2] == table[:2]
    assert kv.n_in_flight == 0
    kv.audit()


def test_returning_needs_room_and_changes_nothing_without_it() -> None:
    kv = manager()
    run(kv, "a", list(range(10)))
    kv.swap_out("a", 10)
    kv.finish_copies()
    kv.admit("b", ANNA, 32, chain([90]), PrefixHit((), None))
    assert kv.swap_in("a", 12) is None
    kv.audit()
    kv.release("b")
    assert kv.swap_in("a", 12) is not None


def test_slots_count_in_a_ledger_of_their_own() -> None:
    host = HostSwap(n_slots=2, slot_bytes=10)
    slots = host.take(2, ANNA)
    assert slots is not None
    assert host.take(1, ANNA) is None
    host.settle()
    host.drain(slots[:1])
    host.drop(slots[1:])
    assert host.recount() == {state: host.ledger[state] for state in MemoryState}
    assert (host.ledger[FREE], host.ledger[IN_FLIGHT]) == (10, 10)
    host.settle()
    host.audit([])


def test_a_block_that_is_half_computed_is_never_exchanged_for_anothers_full_one() -> None:
    kv, tokens = manager(), list(range(12))
    kv.admit("a", ANNA, 12, chain(tokens), PrefixHit((), None))
    kv.grow("a", 6)
    kv.commit("a", 6, tokens)
    kv.swap_out("a", 6)
    kv.finish_copies()
    others = run(kv, "b", tokens)
    back = kv.swap_in("a", 12)
    assert back is not None
    assert back.n_computed == 6
    assert kv.block_tables()["a"][0] == others[0]
    assert kv.block_tables()["a"][1] != others[1], "its second half is still to be written"
