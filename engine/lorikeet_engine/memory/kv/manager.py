"""Who may hold KV blocks, and how many.

`KvManager` keeps the block table of every running request and the host slots of every swapped one. It deals in block
ids only: the tensors live in `execution.kv_cache`, and the copies it asks for are carried out by the step.

A request is promised blocks when it is admitted (`reserved`: clean free blocks that nobody else gets), takes them as it
grows (`used`), and may grow beyond the promise while there is room. Full computed blocks can be found by later requests
of the same owner, and stay findable (`cached`) after everybody has let go of them, until their room is needed.

Invariant: a block that is going to be written has one holder and no key; a block that a planned copy reads or writes
is handed to nobody before `finish_copies`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.memory.kv.charged_blocks import ChargedBlocks
from lorikeet_engine.memory.kv.host_swap import HostSwap
from lorikeet_engine.memory.kv.prefix_index import PrefixChain, PrefixHit
from lorikeet_engine.memory.kv.tables import NO_SLOT, BlockTable, SwapIn, SwappedTable
from lorikeet_engine.memory.ledger import MemoryState, Owner


class KvManager:
    """Block tables over one pool of `n_blocks` blocks of `block_size` tokens, `block_bytes` each over all layers."""

    def __init__(
        self,
        *,
        n_blocks: int,
        block_size: int,
        block_bytes: int,
        n_host_slots: int = 0,
        enable_prefix_caching: bool = True,
    ) -> None:
        self.block_size = block_size
        self.block_bytes = block_bytes
        self._blocks = ChargedBlocks(
            n_blocks=n_blocks, block_bytes=block_bytes, enable_prefix_caching=enable_prefix_caching
        )
        self.n_usable = self._blocks.pool.n_usable
        self.ledger = self._blocks.ledger
        self._host = HostSwap(n_slots=n_host_slots, slot_bytes=block_bytes)
        self.swap_ledger = self._host.ledger
        self._tables: dict[str, BlockTable] = {}
        self._swapped: dict[str, SwappedTable] = {}
        self._arriving: set[int] = set()  # blocks that a planned copy is going to fill

    @property
    def n_available(self) -> int:
        """Blocks that a promise or growth can take now: free ones that are not promised, and evictable cached ones."""
        return self._blocks.n_available

    @property
    def n_in_flight(self) -> int:
        """Blocks that come back when the planned copies are done."""
        return len(self._blocks.pool.departing)

    def pass_time(self, seconds: float) -> None:
        """So long everything was held as it is now."""
        self._blocks.pool.now_s += seconds

    def block_seconds(self, request_id: str) -> float:
        """What a running request has held, and was promised, since it was admitted or came back: blocks times how long.

        Blocks that several hold count in equal parts, so that the requests' figures add up to used and reserved ones.
        """
        table, pool = self._tables[request_id], self._blocks.pool
        return pool.seconds(table.blocks) - table.found_s + table.promised_seconds(pool.now_s)

    def blocks_for(self, n_tokens: int) -> int:
        return -(-n_tokens // self.block_size)

    def could_ever_hold(self, n_tokens: int) -> bool:
        """Whether a request of that length fits an empty pool."""
        return self.blocks_for(n_tokens) <= self.n_usable

    def lookup(self, chain: PrefixChain, n_tokens: int) -> PrefixHit:
        """The blocks that a request of `n_tokens` tokens need not compute; at least its last token is left."""
        return self._blocks.index.lookup(chain, n_tokens)

    def in_progress(self, chain: PrefixChain, n_hit: int) -> str | None:
        """The request that is computing the first block after `n_hit` right now."""
        return self._blocks.index.computing(chain, n_hit)

    def n_needed(self, n_tokens: int, hit: PrefixHit) -> int:
        """How many of the available blocks `admit` will take; a hit that nobody holds is one of them."""
        return self.blocks_for(n_tokens) - self._blocks.n_beyond_available(hit.blocks)

    def admit(self, request_id: str, owner: Owner, n_tokens: int, chain: PrefixChain, hit: PrefixHit) -> None:
        """Share the blocks of the hit and promise the rest of `n_tokens`; the caller has asked `n_needed`.

        Raises:
            ValueError: the id is taken, the hit is stale or another owner's, or the blocks are not there.
        """
        if request_id in self._tables or request_id in self._swapped:
            raise ValueError(f"request {request_id} holds a block table already")
        key_of, owner_of = self._blocks.pool.key_of, self._blocks.pool.owner_of
        for block, key in zip(hit.blocks, chain.keys, strict=False):
            if key_of[block] != key or owner_of[block] != owner:
                raise ValueError(f"block {block} does not hold what request {request_id} found in it")
        if self.n_needed(n_tokens, hit) > self.n_available:
            raise ValueError(f"request {request_id} needs more blocks than are available")
        self._blocks.share(hit.blocks, owner)
        table = BlockTable(owner, chain, list(hit.blocks), n_committed=len(hit.blocks))
        table.n_tokens = len(hit.blocks) * self.block_size
        table.found_s = self._blocks.pool.seconds(hit.blocks)
        self._promise(table, n_tokens)
        self._tables[request_id] = table
        self._blocks.index.start_computing(request_id, chain, len(hit.blocks))

    def grow(self, request_id: str, n_tokens: int) -> tuple[int, ...] | None:
        """Make the table cover `n_tokens` tokens and return it: out of the promise, then free, then cached blocks.

        None: there is no block to be had, and nothing has changed.
        """
        table = self._tables[request_id]
        n_missing = -(-n_tokens // self.block_size) - len(table.blocks)
        if n_missing > 0 and not self._extend(table, n_missing):
            return None
        if n_tokens > table.n_tokens:
            table.n_tokens = n_tokens
        return table.view

    def commit(self, request_id: str, n_computed: int, tokens: Sequence[int]) -> None:
        """Let others find the blocks that `n_computed` computed tokens fill; `tokens` are the request's, from 0."""
        table = self._tables[request_id]
        index, chain, first = self._blocks.index, table.chain, table.n_committed
        n_full = n_computed // self.block_size
        if not index.enabled or n_full <= first:
            return
        chain.extend(tokens, n_computed)
        keys, arriving = chain.keys, self._arriving
        for position in range(first, n_full):
            block = table.blocks[position]
            if block in arriving:
                n_full = position
                break
            index.commit(keys[position], block, chain, position)
        index.stop_computing(request_id, chain, first, n_full)
        table.n_committed = n_full

    def release(self, request_id: str) -> None:
        """Give back everything the request holds or was promised, running or swapped.

        Raises:
            ValueError: no such request; it was released before, or never admitted.
        """
        table = self._tables.pop(request_id, None)
        if table is not None:
            self._let_go(request_id, table)
            return
        swapped = self._swapped.pop(request_id, None)
        if swapped is None:
            raise ValueError(f"request {request_id} holds no blocks")
        self._host.drop(swapped.kept())

    def fork(
        self, parent_id: str, child_id: str, owner: Owner, n_tokens_shared: int, n_tokens: int
    ) -> tuple[tuple[int, int], ...] | None:
        """Start a child on the parent's first `n_tokens_shared` tokens and promise it blocks for `n_tokens`.

        Full blocks are shared; of a partly filled one the child gets its own, and the copy (source, target) that
        fills it is returned. None: there is no room, or the parent's own tail is still to be filled by a copy;
        nothing has changed.
        """
        parent = self._tables[parent_id]
        if owner != parent.owner:
            raise ValueError(f"request {child_id} is another owner's than its parent {parent_id}")
        if child_id in self._tables or child_id in self._swapped:
            raise ValueError(f"request {child_id} holds a block table already")
        n_full, n_tail = divmod(n_tokens_shared, self.block_size)
        if self.blocks_for(n_tokens) - n_full > self.n_available:
            return None
        if n_tail and parent.blocks[n_full] in self._arriving:
            return None
        shared = parent.blocks[:n_full]
        self._blocks.share(shared, owner)
        child = BlockTable(owner, parent.chain.branch(n_full), shared, n_tokens=n_tokens_shared)
        child.n_committed = min(parent.n_committed, n_full)
        child.found_s = self._blocks.pool.seconds(shared)
        copies: tuple[tuple[int, int], ...] = ()
        if n_tail:
            copies = ((parent.blocks[n_full], self._take_for_copy(child)),)
            self._blocks.pool.copying.add(copies[0][0])
        self._promise(child, n_tokens)
        self._tables[child_id] = child
        return copies

    def swap_out(self, request_id: str, n_computed: int) -> tuple[tuple[int, int], ...] | None:
        """Move what only this request holds to host memory; returns the copies (device block, host slot).

        Blocks that others hold under a key are dropped: they will be looked up again. None: host memory has no room,
        or a copy into one of the blocks is still to be carried out; nothing has changed.
        """
        table = self._tables[request_id]
        blocks = table.blocks[: self.blocks_for(n_computed)]
        if not self._arriving.isdisjoint(blocks):
            return None
        refs, key_of = self._blocks.pool.refs, self._blocks.pool.key_of
        positions = [i for i, block in enumerate(blocks) if refs[block] == 1 or key_of[block] is None]
        taken = self._host.take(len(positions), table.owner)
        if taken is None:
            return None
        slots = [NO_SLOT] * len(blocks)
        for position, slot in zip(positions, taken, strict=True):
            slots[position] = slot
        copies = tuple((blocks[position], slots[position]) for position in positions)
        self._blocks.pool.copying.update(block for block, _ in copies)
        self._swapped[request_id] = SwappedTable(table.owner, table.chain, n_computed, slots)
        del self._tables[request_id]
        self._let_go(request_id, table)
        return copies

    def n_needed_to_return(self, request_id: str, n_tokens: int) -> int:
        """How many of the available blocks `swap_in` will take."""
        sources = self._sources_of(self._swapped[request_id])
        found = [block for block, _ in sources if block is not None]
        return self.blocks_for(n_tokens) - self._blocks.n_beyond_available(found)

    def swap_in(self, request_id: str, n_tokens: int) -> SwapIn | None:
        """Bring a swapped request back and promise it blocks for `n_tokens`.

        What is found by its key again is shared instead of copied. From the first block that is in neither place on,
        everything has to be computed again. None: no room, or its copy to host memory is still to be carried out;
        nothing has changed.
        """
        swapped = self._swapped[request_id]
        kept = swapped.kept()
        if self._host.is_filling(kept) or self.n_needed_to_return(request_id, n_tokens) > self.n_available:
            return None
        sources = self._sources_of(swapped)
        found = [block for block, _ in sources if block is not None]
        self._blocks.share(found, swapped.owner)
        table = BlockTable(swapped.owner, swapped.chain, found_s=self._blocks.pool.seconds(found))
        copies = []
        for block, slot in sources:
            if block is not None:
                table.blocks.append(block)
            else:
                copies.append((slot, self._take_for_copy(table)))
        self._host.drain([slot for slot, _ in copies])
        self._host.drop(sorted(set(kept) - {slot for slot, _ in copies}))
        n_computed = min(swapped.n_computed, len(sources) * self.block_size)
        table.n_tokens = n_computed
        self._promise(table, n_tokens)
        del self._swapped[request_id]
        self._tables[request_id] = table
        self._blocks.index.start_computing(request_id, table.chain, len(sources))
        return SwapIn(n_computed, tuple(copies))

    def finish_copies(self) -> None:
        """The step that carried out all planned copies is done."""
        if self._blocks.pool.copying:
            self._arriving.clear()
            self._host.settle()
            self._blocks.settle()

    def purge(self, adapter: AdapterKey) -> int:
        """Nothing of a retired adapter is found any more; returns how many cached blocks came free."""
        return self._blocks.purge(Owner(adapter.tenant, adapter.digest))

    def cool(self, adapter: AdapterKey) -> None:
        """The adapter left the device: what is cached for it is the first to be evicted."""
        self._blocks.cool(Owner(adapter.tenant, adapter.digest))

    def n_prefix_blocks(self, adapter: AdapterKey) -> int:
        """Blocks that a request on the adapter could find."""
        return self._blocks.index.n_blocks_of(Owner(adapter.tenant, adapter.digest))

    def n_exclusive(self, request_id: str) -> int:
        """Blocks that nobody but this request holds: what its preemption would free."""
        refs = self._blocks.pool.refs
        return sum(1 for block in self._tables[request_id].blocks if refs[block] == 1)

    def block_tables(self) -> dict[str, tuple[int, ...]]:
        """The tables of the running requests as they are."""
        return {request_id: tuple(table.blocks) for request_id, table in self._tables.items()}

    def snapshot(self) -> LedgerSnapshot:
        """The ledger; fragmentation is what the last blocks hold beyond their tokens (at most block - 1 a request)."""
        empty = sum(len(table.blocks) * self.block_size - table.n_tokens for table in self._tables.values())
        return self.ledger.snapshot(
            fragmentation=empty * self.block_bytes // self.block_size,
            shared=self._blocks.pool.n_shared * self.block_bytes,
        )

    def swap_snapshot(self) -> LedgerSnapshot:
        """The ledger of the host slots."""
        return self.swap_ledger.snapshot()

    @property
    def n_allocated(self) -> int:
        """Blocks handed out since the start; one that is shared has been handed out once."""
        return self._blocks.pool.n_taken

    @property
    def n_evicted(self) -> int:
        """Cached blocks that have made room for others since the start."""
        return self._blocks.n_evicted

    def recount(self) -> dict[MemoryState, int]:
        """Bytes of the pool by state, counted from blocks and promises and not from the ledger."""
        return self._blocks.recount()

    def audit(self) -> None:
        """Raise AssertionError unless every invariant of the pool, the index, the host slots and the ledgers holds."""
        promised: Counter[Owner] = Counter()
        for table in self._tables.values():
            promised[table.owner] += table.n_promised
            assert all(self._blocks.pool.owner_of[block] == table.owner for block in table.blocks), "another's block"
            assert table.view == tuple(table.blocks)
        self._blocks.audit([table.blocks for table in self._tables.values()], promised, set(self._tables))
        self._host.audit([slot for swapped in self._swapped.values() for slot in swapped.kept()])

    def _let_go(self, request_id: str, table: BlockTable) -> None:
        """Give back the blocks and the promise of a table that is no more."""
        self._blocks.give_back(table.blocks, table.owner)
        self._blocks.unpromise(table.n_promised, table.owner)
        self._blocks.index.stop_computing(request_id, table.chain, table.n_committed)

    def _extend(self, table: BlockTable, n: int) -> bool:
        """Append `n` blocks to a table, out of its promise first; False when there are not so many."""
        n_promised = table.n_promised if table.n_promised < n else n
        if n - n_promised > self._blocks.n_available:
            return False
        if n_promised:
            table.set_promise(table.n_promised - n_promised, self._blocks.pool.now_s)
        table.blocks += self._blocks.take(n, table.owner, n_promised=n_promised)
        table.view = tuple(table.blocks)
        return True

    def _promise(self, table: BlockTable, n_tokens: int) -> None:
        """Set blocks aside until the table can cover `n_tokens`; the caller has made sure of the room."""
        table.view = tuple(table.blocks)
        table.set_promise(self.blocks_for(n_tokens) - len(table.blocks), self._blocks.pool.now_s)
        self._blocks.promise(table.n_promised, table.owner)

    def _take_for_copy(self, table: BlockTable) -> int:
        """Append a block that a planned copy is going to fill."""
        table.blocks += self._blocks.take(1, table.owner)
        self._arriving.add(table.blocks[-1])
        self._blocks.pool.copying.add(table.blocks[-1])
        return table.blocks[-1]

    def _sources_of(self, swapped: SwappedTable) -> list[tuple[int | None, int]]:
        """(block found by its key or None, host slot) of each leading block that is still somewhere."""
        find = self._blocks.index.by_key.get
        keys = swapped.chain.keys[: swapped.n_computed // self.block_size]
        sources: list[tuple[int | None, int]] = []
        for position, slot in enumerate(swapped.slots):
            block = find(keys[position]) if position < len(keys) else None
            if block is None and slot == NO_SLOT:
                break
            sources.append((block, slot))
        return sources
