"""Free lists and reference counts: a block is in one place, and comes back once."""

from __future__ import annotations

import pytest

from lorikeet_engine.memory.kv.block_pool import BlockPool
from lorikeet_engine.memory.ledger import Owner

ANNA = Owner("anna")


def test_a_pool_without_a_usable_block_is_refused() -> None:
    with pytest.raises(ValueError, match="block 0"):
        BlockPool(1)


def test_block_zero_is_never_handed_out() -> None:
    pool = BlockPool(5)
    assert sorted(pool.take(4, ANNA)) == [1, 2, 3, 4]


def test_a_block_given_back_twice_is_caught() -> None:
    pool = BlockPool(3)
    blocks = pool.take(1, ANNA)
    pool.give_back(blocks)
    with pytest.raises(ValueError, match="nobody holds"):
        pool.give_back(blocks)


def test_a_block_never_handed_out_cannot_be_given_back() -> None:
    with pytest.raises(ValueError, match="nobody holds"):
        BlockPool(3).give_back([2])


def test_a_shared_block_is_free_after_its_last_holder() -> None:
    pool = BlockPool(3)
    blocks = pool.take(1, ANNA)
    pool.share(blocks)
    assert pool.n_shared == 1
    assert pool.give_back(blocks) == (0, 0, 0)
    assert pool.n_shared == 0
    assert pool.give_back(blocks) == (1, 0, 0)
    pool.audit([])


def test_a_block_with_a_key_is_kept_last_block_oldest() -> None:
    pool = BlockPool(5)
    blocks = pool.take(3, ANNA)
    for block in blocks:
        pool.key_of[block] = bytes([block])
    assert pool.give_back(blocks) == (0, 3, 0)
    assert list(pool.lru) == blocks[::-1]
    assert len(pool.clean) == 1


def test_a_block_that_a_copy_reads_comes_back_when_the_copy_is_done() -> None:
    pool = BlockPool(5)
    copied, other = pool.take(2, ANNA)
    pool.copying.add(copied)
    assert pool.give_back([copied, other]) == (1, 0, 1)
    assert copied not in pool.clean
    pool.audit([])
    assert list(pool.settle()) == [(copied, False)]
    assert copied in pool.clean
    pool.audit([])


def test_the_audit_notices_a_block_that_nobody_has() -> None:
    pool = BlockPool(5)
    pool.clean.pop()
    with pytest.raises(AssertionError, match="no place"):
        pool.audit([])


def test_the_audit_notices_a_reference_that_no_table_has() -> None:
    pool = BlockPool(5)
    pool.take(1, ANNA)
    with pytest.raises(AssertionError, match="references"):
        pool.audit([])
