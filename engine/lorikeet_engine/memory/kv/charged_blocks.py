"""Blocks with their price: whatever is promised, handed out, shared, evicted or given back is charged to an owner.

Keeps the pool, the index and the ledger of one KV pool in step. Knows owners, but no requests and no tables.

Invariant: promised blocks are backed by clean ones, so a promise never has to evict anything when it is called in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from lorikeet_engine.memory.kv.block_pool import BlockPool
from lorikeet_engine.memory.kv.prefix_index import PrefixIndex
from lorikeet_engine.memory.ledger import MemoryState, Owner, PoolLedger

FREE, CACHED, RESERVED = MemoryState.FREE, MemoryState.CACHED, MemoryState.RESERVED
IN_FLIGHT, USED = MemoryState.IN_FLIGHT, MemoryState.USED


class ChargedBlocks:
    """`n_blocks` blocks of `block_bytes` each, found again by key unless `enable_prefix_caching` is off."""

    def __init__(self, *, n_blocks: int, block_bytes: int, enable_prefix_caching: bool) -> None:
        self.block_bytes = block_bytes
        self.pool = BlockPool(n_blocks)
        self.index = PrefixIndex(self.pool, enabled=enable_prefix_caching)
        self.ledger = PoolLedger("kv", self.pool.n_usable * block_bytes)
        self.n_promised = 0
        self.n_evicted = 0  # since the start

    @property
    def n_available(self) -> int:
        """Blocks that can be promised or taken now: clean ones that are not promised, and cached ones."""
        return len(self.pool.clean) - self.n_promised + len(self.pool.lru)

    def n_beyond_available(self, blocks: Iterable[int]) -> int:
        """How many of the blocks are not counted as available: held, or part of a copy that runs."""
        refs, departing = self.pool.refs, self.pool.departing
        return sum(1 for block in blocks if refs[block] or block in departing)

    def promise(self, n: int, owner: Owner) -> None:
        """Set clean blocks aside for the owner; the caller has made sure of the room."""
        self._make_clean(n)
        self.n_promised += n
        self._move(n, owner, FREE, RESERVED)

    def unpromise(self, n: int, owner: Owner) -> None:
        self.n_promised -= n
        self._move(n, owner, RESERVED, FREE)

    def take(self, n: int, owner: Owner, *, n_promised: int = 0) -> list[int]:
        """Hand out `n` blocks, `n_promised` of them out of a promise; the caller has made sure of room for the rest."""
        if n_promised < n:
            self._make_clean(n - n_promised)  # while the promise still counts: its clean blocks are spoken for
            self._move(n - n_promised, owner, FREE, USED)
        if n_promised:
            self.n_promised -= n_promised
            self._move(n_promised, owner, RESERVED, USED)
        return self.pool.take(n, owner)

    def share(self, blocks: Iterable[int], owner: Owner) -> None:
        """One more holder for blocks that were found."""
        taken = self.pool.share(blocks)
        self._move(taken.n_cached, owner, CACHED, USED)
        self._move(taken.n_departing, owner, IN_FLIGHT, USED)

    def give_back(self, blocks: Sequence[int], owner: Owner) -> None:
        """One holder fewer for each block."""
        gone = self.pool.give_back(blocks)
        self._move(gone.n_clean, owner, USED, FREE)
        self._move(gone.n_cached, owner, USED, CACHED)
        self._move(gone.n_departing, owner, USED, IN_FLIGHT)

    def settle(self) -> None:
        """All planned copies are done."""
        for block, is_cached in self.pool.settle():
            self._move(1, self.pool.owner_of[block], IN_FLIGHT, CACHED if is_cached else FREE)

    def purge(self, owner: Owner) -> int:
        """Nothing of the owner is found any more; returns how many cached blocks came free."""
        lru, n_freed = self.pool.lru, 0
        for block in self.index.forget_owner(owner):
            if block in lru:
                self.pool.clean_up(block)
                n_freed += 1
        self._move(n_freed, owner, CACHED, FREE)
        return n_freed

    def cool(self, owner: Owner) -> None:
        """The owner's cached blocks are the first to be evicted, leaves before their parents."""
        lru = self.pool.lru
        for block in self.index.blocks_of(owner):
            if block in lru:
                lru.move_to_end(block, last=False)

    def recount(self) -> dict[MemoryState, int]:
        """Bytes by state, counted from the pool and not from the ledger."""
        pool = self.pool
        counts = {
            FREE: len(pool.clean) - self.n_promised,
            CACHED: len(pool.lru),
            RESERVED: self.n_promised,
            IN_FLIGHT: len(pool.departing),
            USED: sum(1 for n_holders in pool.refs if n_holders),
        }
        return {state: n * self.block_bytes for state, n in counts.items()}

    def audit(self, tables: Sequence[Sequence[int]], promised: Counter[Owner], running: set[str]) -> None:
        """Raise AssertionError unless pool, index and ledger agree with each other and with what requests hold."""
        pool = self.pool
        self.ledger.audit()
        pool.audit(tables)
        self.index.audit(running)
        counted = self.recount()
        assert counted == {state: self.ledger[state] for state in MemoryState}, "the ledger is not what the pool holds"
        assert counted[FREE] >= 0, "more is promised than there are clean blocks"
        assert promised.total() == self.n_promised, "a promise without a request"
        somewhere = {block for table in tables for block in table}.union(pool.lru, pool.departing)
        held = promised + Counter(pool.owner_of[block] for block in somewhere)
        in_bytes = {owner: n * self.block_bytes for owner, n in held.items()}
        assert in_bytes == self.ledger.held_by_owner(), "owners are charged for what they do not hold"

    def _make_clean(self, n: int) -> None:
        """Evict cached blocks, oldest first, until `n` clean ones are there that nobody was promised."""
        pool, forget = self.pool, self.index.forget
        n_missing = n - len(pool.clean) + self.n_promised
        if n_missing <= 0:
            return
        self.n_evicted += n_missing
        evicted: Counter[Owner] = Counter()
        for _ in range(n_missing):
            block, _ = pool.lru.popitem(last=False)
            forget(block)
            pool.clean.append(block)
            evicted[pool.owner_of[block]] += 1
        for owner, n_evicted in evicted.items():
            self._move(n_evicted, owner, CACHED, FREE)

    def _move(self, n_blocks: int, owner: Owner, source: MemoryState, target: MemoryState) -> None:
        if n_blocks:
            self.ledger.move(n_blocks * self.block_bytes, owner, source=source, target=target)
