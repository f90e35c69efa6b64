"""Block tables: promises are kept, growth takes what it needs, forks share what nobody writes any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import PrefixChain, PrefixHit, prefix_root
from lorikeet_engine.memory.ledger import Owner

BLOCK = 4
ANNA, BEN = Owner("anna", "d1"), Owner("ben", "d1")


def chain(tokens: list[int]) -> PrefixChain:
    root = prefix_root(model="m", kv_format="bf16", block_size=BLOCK, tenant="anna", salt=b"", adapter="d1")
    made = PrefixChain(root, BLOCK)
    made.extend(tokens, len(tokens))
    return made


def manager(n_blocks: int = 33, block_size: int = BLOCK) -> KvManager:
    return KvManager(n_blocks=n_blocks, block_size=block_size, block_bytes=block_size, n_host_slots=8)


def start(kv: KvManager, name: str, n_tokens: int) -> tuple[int, ...]:
    """Admit a prompt of its own and compute all of it."""
    tokens = [ord(name)] * n_tokens
    kv.admit(name, ANNA, n_tokens, chain(tokens), PrefixHit((), None))
    table = kv.grow(name, n_tokens)
    assert table is not None
    kv.commit(name, n_tokens, tokens)
    return table


def test_paging_wastes_less_than_a_block_a_request() -> None:
    kv = manager()
    for name, n_tokens in {"a": 9, "b": 13, "c": 5, "d": 15}.items():
        start(kv, name, n_tokens)
    assert (kv.snapshot().used, kv.snapshot().fragmentation) == (52, 10)


@given(n_before=st.integers(1, 2 * BLOCK), n_more=st.integers(1, 3 * BLOCK))
def test_growing_by_several_tokens_takes_every_block_it_crosses_into(n_before: int, n_more: int) -> None:
    kv = manager()
    start(kv, "a", n_before)
    table = kv.grow("a", n_before + n_more)
    assert table is not None
    assert len(table) == -(-(n_before + n_more) // BLOCK)
    kv.audit()


def test_a_promise_is_kept_when_others_take_all_the_rest() -> None:
    kv = manager(n_blocks=9)
    kv.admit("a", ANNA, 16, chain([1] * 16), PrefixHit((), None))
    start(kv, "b", 12)
    assert kv.grow("b", 17) is None
    assert kv.grow("b", 16) is not None
    assert kv.n_available == 0
    assert kv.grow("a", 16) is not None
    assert kv.grow("a", 17) is None


def test_growth_evicts_what_is_cached_when_nothing_is_clean() -> None:
    kv = manager(n_blocks=5)
    start(kv, "a", 8)
    kv.release("a")
    start(kv, "b", 8)
    assert kv.snapshot().cached == 2 * BLOCK
    table = kv.grow("b", 16)
    assert table is not None
    assert sorted(table) == [1, 2, 3, 4]
    assert kv.snapshot().cached == 0
    kv.audit()


def test_growth_out_of_a_promise_and_beyond_it_at_once_leaves_other_promises_alone() -> None:
    kv = manager(n_blocks=7)
    start(kv, "c", 8)
    kv.release("c")
    kv.admit("a", ANNA, 8, chain([1] * 8), PrefixHit((), None))
    kv.admit("b", ANNA, 8, chain([2] * 8), PrefixHit((), None))
    assert kv.grow("a", 16) is not None
    kv.audit()
    assert kv.grow("b", 8) is not None
    assert kv.grow("b", 9) is None


def test_the_table_is_the_same_object_until_a_block_is_added() -> None:
    kv = manager()
    table = start(kv, "a", 5)
    assert kv.grow("a", 8) is table
    assert kv.grow("a", 9) is not table


def test_admitting_twice_is_refused() -> None:
    kv = manager()
    start(kv, "a", 5)
    with pytest.raises(ValueError, match="already"):
        start(kv, "a", 5)


def test_a_hit_that_is_no_longer_there_is_refused() -> None:
    kv = manager(n_blocks=5)
    start(kv, "a", 8)
    kv.release("a")
    keys = chain([ord("a")] * 9)
    hit = kv.lookup(keys, 9)
    assert len(hit.blocks) == 2
    start(kv, "b", 16)
    kv.release("b")
    with pytest.raises(ValueError, match="does not hold"):
        kv.admit("c", ANNA, 9, keys, hit)
    kv.audit()


def test_a_fork_shares_full_blocks_and_gets_its_own_tail() -> None:
    kv = manager()
    table = start(kv, "a", 10)
    copies = [copy for child in ("b", "c", "d") for copy in kv.fork("a", child, ANNA, 10, 12) or ()]
    tables = kv.block_tables()
    assert [source for source, _ in copies] == [table[2]] * 3
    assert len({tables[name][2] for name in "abcd"}) == 4, "a partly filled block has exactly one writer"
    assert {tables[name][:2] for name in "abcd"} == {table[:2]}
    assert kv.snapshot().shared == 2 * BLOCK
    for name in "abcd":
        kv.release(name)
    kv.finish_copies()
    assert kv.n_available == kv.n_usable
    kv.audit()


def test_a_fork_on_a_block_boundary_copies_nothing() -> None:
    kv = manager()
    start(kv, "a", 8)
    assert kv.fork("a", "b", ANNA, 8, 12) == ()
    assert kv.n_exclusive("a") == 0
    kv.audit()


def test_the_source_of_a_fork_is_kept_until_the_copy_is_done() -> None:
    kv = manager()
    table = start(kv, "a", 6)
    kv.fork("a", "b", ANNA, 6, 8)
    kv.release("a")
    assert kv.n_in_flight == 1
    others = start(kv, "c", 4 * kv.n_available)
    assert table[1] not in others
    kv.finish_copies()
    assert kv.n_available == 1
    kv.audit()


def test_a_fork_across_owners_is_refused() -> None:
    kv = manager()
    start(kv, "a", 8)
    with pytest.raises(ValueError, match="another owner"):
        kv.fork("a", "b", BEN, 8, 12)


def test_a_forks_own_continuation_is_found_under_its_own_tokens() -> None:
    kv, prompt = manager(), [5] * 6
    kv.admit("a", ANNA, 8, chain(prompt), PrefixHit((), None))
    kv.grow("a", 6)
    kv.fork("a", "b", ANNA, 6, 8)
    kv.finish_copies()
    for name, token in (("a", 1), ("b", 2)):
        kv.grow(name, 8)
        kv.commit(name, 8, [*prompt, token, token])
    for name, token in (("a", 1), ("b", 2)):
        found = kv.lookup(chain([*prompt, token, token, 9]), 9).blocks
        assert found[1] == kv.block_tables()[name][1]
    kv.audit()
