"""Which block holds which prefix: keys of full blocks, the map from key to block, and why a prefix was not found.

A key is SHA-256 over the key before it and the tokens of one block; the first one starts at a root that frames the
model, the KV format, the tenant, the salt and the adapter. Two requests share a key only if they share all of that and
every token so far. Knows nothing about who holds a block: `block_pool` counts that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from struct import Struct
from typing import NamedTuple, TypeVar

from lorikeet_engine.memory.kv.block_pool import BlockPool
from lorikeet_engine.memory.ledger import Owner

K = TypeVar("K")
V = TypeVar("V")

# A root is three digests: of everything (what keys depend on), and of two parts of it that only name a miss.
_WHOLE = 32
_SCOPE = slice(_WHOLE, _WHOLE + 16)  # model, format and tenant: misses are never explained across tenants
_ADAPTER = slice(_WHOLE + 16, _WHOLE + 32)

GHOSTS_PER_BLOCK = 4
"""How many evicted keys are remembered for each block of the pool."""


class MissReason(StrEnum):
    """Why the first block that was not found was not found."""

    COLD = "cold"  # never seen
    EVICTED = "evicted"  # was cached, its room was needed
    SALT = "salt"  # the tenant's same tokens are known under another salt
    ADAPTER_VERSION = "adapter_version"  # the tenant's same tokens are known for another adapter
    IN_PROGRESS = "in_progress"  # a running request is computing it right now
    PARTIAL_TAIL = "partial_tail"  # every full block was found; the rest does not fill one
    TOO_SHORT = "too_short"  # no full block before the last token, which is always computed
    DISABLED = "disabled"


class PrefixHit(NamedTuple):
    """The leading blocks that are there already, and why there are no more (None: only the last token's block)."""

    blocks: tuple[int, ...]
    reason: MissReason | None


def prefix_root(*, model: str, kv_format: str, block_size: int, tenant: str, salt: bytes, adapter: str | None) -> bytes:
    """What the keys of one (model, format, tenant, salt, adapter) start from; `adapter` is a digest, None for base."""
    scope = (
        _frame("model", _utf8(model))
        + _frame("kv_format", _utf8(kv_format))
        + _frame("block_size", str(block_size).encode())
        + _frame("tenant", _utf8(tenant))
    )
    which = _frame("base", b"") if adapter is None else _frame("adapter", _utf8(adapter))
    whole = _frame("lorikeet-kv", b"1") + scope + _frame("salt", salt) + which
    return sha256(whole).digest() + sha256(scope).digest()[:16] + sha256(which).digest()[:16]


def _frame(tag: str, value: bytes) -> bytes:
    """Tag and value with their lengths: no two sequences of frames concatenate to the same bytes."""
    return bytes([len(tag)]) + tag.encode() + len(value).to_bytes(8, "little") + value


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class PrefixChain:
    """The keys of one request's full blocks, in order; each block is hashed once.

    `fingerprints` are the same chain without salt and adapter. They only tell reasons of misses apart, within one
    tenant, so the process's own fast hash is good enough for them.
    """

    __slots__ = ("_pack", "block_size", "fingerprints", "keys", "n_tokens", "root")

    def __init__(self, root: bytes, block_size: int) -> None:
        self.root = root
        self.block_size = block_size
        self.n_tokens = 0
        self.keys: list[bytes] = []
        self.fingerprints: list[int] = []
        self._pack = Struct(f"<{block_size}i").pack

    def extend(self, tokens: Sequence[int], n_tokens: int) -> None:
        """Hash the full blocks of `tokens[:n_tokens]` that are not hashed yet."""
        keys, size = self.keys, self.block_size
        self.n_tokens = max(self.n_tokens, n_tokens)
        n_full = n_tokens // size
        if n_full <= len(keys):
            return
        key = keys[-1] if keys else self.root
        fingerprint = self.fingerprints[-1] if keys else hash(self.root[_SCOPE])
        pack, add, add_fingerprint = self._pack, keys.append, self.fingerprints.append
        for start in range(len(keys) * size, n_full * size, size):
            block = pack(*tokens[start : start + size])
            key = sha256(key + block).digest()
            fingerprint = hash((fingerprint, block))
            add(key)
            add_fingerprint(fingerprint)

    def branch(self, n_blocks: int) -> PrefixChain:
        """A chain of its own that starts with the first `n_blocks` keys of this one."""
        chain = PrefixChain(self.root, self.block_size)
        chain.keys = self.keys[:n_blocks]
        chain.n_tokens = len(chain.keys) * self.block_size
        chain.fingerprints = self.fingerprints[:n_blocks]
        return chain


class PrefixIndex:
    """Committed blocks by key, over the blocks of one pool.

    Invariant: `by_key[k] == b` exactly when `pool.key_of[b] == k`. The first block committed under a key keeps it; a
    later duplicate stays private to its request.
    """

    def __init__(self, pool: BlockPool, *, enabled: bool) -> None:
        self.enabled = enabled
        self.by_key: dict[bytes, int] = {}
        self._pool = pool
        self._by_owner: dict[Owner, dict[int, None]] = {}  # in the order of commits: a parent before its children
        self._computing: dict[bytes, str] = {}
        self._n_ghosts = GHOSTS_PER_BLOCK * pool.n_usable
        self._ghosts: OrderedDict[bytes, None] = OrderedDict()
        self._seen: OrderedDict[int, bytes] = OrderedDict()  # fingerprint -> root it was last committed under

    def lookup(self, chain: PrefixChain, n_tokens: int) -> PrefixHit:
        """The leading committed blocks of a request of `n_tokens` tokens; its last token is never among them."""
        if not self.enabled:
            return PrefixHit((), MissReason.DISABLED)
        n_usable = (n_tokens - 1) // chain.block_size
        if n_usable <= 0:
            return PrefixHit((), MissReason.TOO_SHORT)
        find, found = self.by_key.get, []
        for key in islice(chain.keys, n_usable):
            block = find(key)
            if block is None:
                break
            found.append(block)
        blocks = tuple(found)
        if len(blocks) == n_usable:
            return PrefixHit(blocks, MissReason.PARTIAL_TAIL if n_tokens % chain.block_size else None)
        return PrefixHit(blocks, self._reason(chain, len(blocks)))

    def commit(self, key: bytes, block: int, chain: PrefixChain, position: int) -> None:
        """The block is full and written: let others find it, unless another one holds the same already."""
        pool = self._pool
        if key in self.by_key or pool.key_of[block] is not None:
            return
        self.by_key[key] = block
        pool.key_of[block] = key
        self._by_owner.setdefault(pool.owner_of[block], {})[block] = None
        self._ghosts.pop(key, None)
        _remember(self._seen, chain.fingerprints[position], chain.root, self._n_ghosts)

    def forget(self, block: int) -> None:
        """The block's room is needed: nothing finds it any more."""
        key = self._unlink(block)
        _remember(self._ghosts, key, None, self._n_ghosts)

    def forget_owner(self, owner: Owner) -> list[int]:
        """Nothing of that owner is found any more; returns the blocks that were."""
        blocks = list(self._by_owner.get(owner, ()))
        for block in blocks:
            self._unlink(block)
        return blocks

    def n_blocks_of(self, owner: Owner) -> int:
        """How many blocks of the owner can be found."""
        return len(self._by_owner.get(owner, ()))

    def blocks_of(self, owner: Owner) -> list[int]:
        """The owner's committed blocks, a parent before its children."""
        return list(self._by_owner.get(owner, ()))

    def start_computing(self, request_id: str, chain: PrefixChain, first: int) -> None:
        """The request is going to compute the blocks from `first` on, those that nobody else is computing."""
        if self.enabled:
            claim = self._computing.setdefault
            for key in islice(chain.keys, first, None):
                claim(key, request_id)

    def stop_computing(self, request_id: str, chain: PrefixChain, first: int, end: int | None = None) -> None:
        """The blocks from `first` on are committed, or will not be by this request."""
        computing = self._computing
        for key in islice(chain.keys, first, end):
            if computing.get(key) == request_id:
                del computing[key]

    def computing(self, chain: PrefixChain, position: int) -> str | None:
        """The request that is computing the block at `position` of the chain; None for the block of its last token."""
        if position >= (chain.n_tokens - 1) // chain.block_size:
            return None
        return self._computing.get(chain.keys[position])

    def audit(self, running: set[str]) -> None:
        """Raise AssertionError unless the invariant holds; `running` are the requests that may compute something."""
        key_of = self._pool.key_of
        assert all(key_of[block] == key for key, block in self.by_key.items()), "a key leads to a block without it"
        assert sum(key is not None for key in key_of) == len(self.by_key), "a block has a key that nobody can find"
        grouped = {block: owner for owner, blocks in self._by_owner.items() for block in blocks}
        assert grouped == {block: self._pool.owner_of[block] for block in self.by_key.values()}, "owners disagree"
        assert set(self._computing.values()) <= running, "a request that is gone still computes"
        assert max(len(self._ghosts), len(self._seen)) <= self._n_ghosts

    def _unlink(self, block: int) -> bytes:
        pool = self._pool
        key = pool.key_of[block]
        assert key is not None, "only a committed block is forgotten"
        pool.key_of[block] = None
        del self.by_key[key]
        owner = pool.owner_of[block]
        siblings = self._by_owner[owner]
        del siblings[block]
        if not siblings:
            del self._by_owner[owner]
        return key

    def _reason(self, chain: PrefixChain, position: int) -> MissReason:
        """Why the block at `position` is not there."""
        if position >= len(chain.keys):
            return MissReason.COLD
        key = chain.keys[position]
        if key in self._computing:
            return MissReason.IN_PROGRESS
        if key in self._ghosts:
            return MissReason.EVICTED
        root = self._seen.get(chain.fingerprints[position])
        if root is None:
            return MissReason.COLD
        if root[_ADAPTER] != chain.root[_ADAPTER]:
            return MissReason.ADAPTER_VERSION
        return MissReason.EVICTED if root == chain.root else MissReason.SALT


def _remember(memory: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    """Set the youngest entry of a memory of at most `limit` entries."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > limit:
        memory.popitem(last=False)
