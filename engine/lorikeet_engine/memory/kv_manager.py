"""Who may hold KV blocks, and how many.

`KvManager` keeps the block table of every running request. It deals in block ids only: the tensors live in
`execution.kv_cache`.

A request is admitted only when blocks for all that it may ever hold (prompt and `max_tokens`) can be promised, so a
running request can always grow and is never preempted. Promised blocks are `reserved`, handed-out ones `used`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.memory.block_pool import BlockPool
from lorikeet_engine.memory.ledger import MemoryState, Owner, PoolLedger


@dataclass(slots=True)
class BlockTable:
    """The blocks of one request in token order, and how many more it was promised."""

    owner: Owner
    n_promised: int
    blocks: list[int] = field(default_factory=list)
    n_tokens: int = 0


class KvManager:
    """Block tables over one pool of `n_blocks` blocks of `block_size` tokens, `block_bytes` each over all layers."""

    def __init__(self, *, n_blocks: int, block_size: int, block_bytes: int) -> None:
        self.block_size = block_size
        self.block_bytes = block_bytes
        self._pool = BlockPool(n_blocks)
        self.ledger = PoolLedger("kv", self._pool.n_usable * block_bytes)
        self._tables: dict[str, BlockTable] = {}

    def blocks_for(self, n_tokens: int) -> int:
        return -(-n_tokens // self.block_size)

    def could_ever_hold(self, n_tokens: int) -> bool:
        """Whether a request of that length fits an empty pool."""
        return self.blocks_for(n_tokens) <= self._pool.n_usable

    def can_admit(self, n_tokens: int) -> bool:
        return self.blocks_for(n_tokens) * self.block_bytes <= self.ledger[MemoryState.FREE]

    def admit(self, request_id: str, owner: Owner, n_tokens: int) -> None:
        """Promise blocks for `n_tokens` tokens; the caller has asked `can_admit`."""
        if request_id in self._tables:
            raise ValueError(f"request {request_id} holds a block table already")
        n_blocks = self.blocks_for(n_tokens)
        self.ledger.move(n_blocks * self.block_bytes, owner, source=MemoryState.FREE, target=MemoryState.RESERVED)
        self._tables[request_id] = BlockTable(owner, n_promised=n_blocks)

    def grow(self, request_id: str, n_tokens: int) -> tuple[int, ...]:
        """Make the table cover `n_tokens` tokens, out of what was promised, and return it."""
        table = self._tables[request_id]
        while len(table.blocks) < self.blocks_for(n_tokens):
            if not table.n_promised:
                raise ValueError(f"request {request_id} grows beyond the blocks it was promised")
            table.n_promised -= 1
            table.blocks.append(self._pool.take())
            self.ledger.move(self.block_bytes, table.owner, source=MemoryState.RESERVED, target=MemoryState.USED)
        table.n_tokens = max(table.n_tokens, n_tokens)
        return tuple(table.blocks)

    def release(self, request_id: str) -> None:
        """Give back everything the request holds or was promised."""
        table = self._tables.pop(request_id)
        for block in reversed(table.blocks):
            self._pool.give_back(block)
        used, promised = len(table.blocks) * self.block_bytes, table.n_promised * self.block_bytes
        self.ledger.move(used, table.owner, source=MemoryState.USED, target=MemoryState.FREE)
        self.ledger.move(promised, table.owner, source=MemoryState.RESERVED, target=MemoryState.FREE)

    def block_tables(self) -> dict[str, tuple[int, ...]]:
        """The tables as they are, for recounts."""
        return {request_id: tuple(table.blocks) for request_id, table in self._tables.items()}

    def snapshot(self) -> LedgerSnapshot:
        """The ledger; fragmentation is what the last blocks hold beyond their tokens (at most block - 1 a request)."""
        empty = sum(len(t.blocks) * self.block_size - t.n_tokens for t in self._tables.values())
        return self.ledger.snapshot(fragmentation=empty * self.block_bytes // self.block_size)
