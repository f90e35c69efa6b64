"""Block tables: no block has two owners, nothing leaks, the ledger equals a recount."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lorikeet_engine.memory.block_pool import BlockPool
from lorikeet_engine.memory.kv_manager import KvManager
from lorikeet_engine.memory.ledger import MemoryState, Owner

BLOCK, BLOCK_BYTES, N_BLOCKS = 4, 100, 17


class KvMachine(RuleBasedStateMachine):
    """Random admissions, growth and releases against a plain model of lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.kv = KvManager(n_blocks=N_BLOCKS, block_size=BLOCK, block_bytes=BLOCK_BYTES)
        self.promised: dict[str, int] = {}
        self.length: dict[str, int] = {}
        self.serial = 0

    @rule(n_tokens=st.integers(1, 70))
    def admit(self, n_tokens: int) -> None:
        promised_blocks = sum(-(-n // BLOCK) for n in self.promised.values())
        fits = promised_blocks + -(-n_tokens // BLOCK) <= N_BLOCKS - 1
        assert self.kv.can_admit(n_tokens) == fits
        if fits:
            self.serial += 1
            name = f"r{self.serial}"
            self.kv.admit(name, Owner(f"tenant{self.serial % 3}"), n_tokens)
            self.promised[name], self.length[name] = n_tokens, 0

    @precondition(lambda self: self.promised)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.promised)))
        n_tokens = data.draw(st.integers(1, self.promised[name]))
        before = self.kv.block_tables()[name]
        table = self.kv.grow(name, n_tokens)
        assert table[: len(before)] == before, "a table only ever grows at its end"
        self.length[name] = max(self.length[name], n_tokens)

    @precondition(lambda self: self.promised)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.promised)))
        self.kv.release(name)
        del self.promised[name], self.length[name]

    @invariant()
    def ledger_equals_a_recount_of_the_tables(self) -> None:
        tables = self.kv.block_tables()
        held = Counter(block for table in tables.values() for block in table)
        assert not held or max(held.values()) == 1
        assert 0 not in held
        used = {name: -(-n // BLOCK) for name, n in self.length.items()}
        promised = {name: -(-n // BLOCK) for name, n in self.promised.items()}
        assert {name: len(table) for name, table in tables.items()} == used
        assert self.kv.ledger[MemoryState.USED] == sum(used.values()) * BLOCK_BYTES
        assert self.kv.ledger[MemoryState.RESERVED] == (sum(promised.values()) - sum(used.values())) * BLOCK_BYTES
        empty_slots = sum(used[name] * BLOCK - n for name, n in self.length.items())
        assert self.kv.snapshot().fragmentation == empty_slots * BLOCK_BYTES // BLOCK


TestKvMachine = KvMachine.TestCase
TestKvMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_growing_beyond_the_promise_is_refused() -> None:
    kv = KvManager(n_blocks=9, block_size=4, block_bytes=1)
    kv.admit("r", Owner("t"), 5)
    with pytest.raises(ValueError, match="promised"):
        kv.grow("r", 9)


def test_admitting_twice_is_refused() -> None:
    kv = KvManager(n_blocks=9, block_size=4, block_bytes=1)
    kv.admit("r", Owner("t"), 5)
    with pytest.raises(ValueError, match="already"):
        kv.admit("r", Owner("t"), 5)


def test_a_block_given_back_twice_is_caught() -> None:
    pool = BlockPool(3)
    block = pool.take()
    pool.give_back(block)
    with pytest.raises(ValueError, match="nobody holds"):
        pool.give_back(block)


def test_a_pool_without_a_usable_block_is_refused() -> None:
    with pytest.raises(ValueError, match="block 0"):
        BlockPool(1)
