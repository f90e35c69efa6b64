"""Which KV blocks are held, and by how many; which can be taken. Block 0 is never handed out: padding points at it.

            take                    give_back, no key            evicted
    clean ───────▶ held (refs ≥ 1) ──────────────────▶ clean ◀─────────── lru
                    ▲   │  └─ give_back, has a key ───────────────────────▶ ▲
                    └ share ┘   └─ give_back while a copy runs ─▶ departing ┘ settle

Knows no tokens and no requests, and moves nothing in a ledger: it says how many blocks went where.

A held block's time is its holders' in equal parts. What each of them has had is brought forward only when the number
of holders changes, so that time can pass without touching a block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lorikeet_engine.memory.ledger import Owner

NOBODY = Owner("")


class GivenBack(NamedTuple):
    """Where the blocks went that nobody holds any more."""

    n_clean: int
    n_cached: int
    n_departing: int


class BlockPool:
    """Reference counts and free lists of `n_blocks` blocks.

    Invariant: every usable block is held (`refs` ≥ 1), or is in exactly one of `clean` (a stack; no key), `lru`
    (oldest first; has a key) and `departing` (a copy that was planned still reads or writes it).

    Attributes:
        n_taken: blocks handed out since the start.
        now_s: whoever counts how long blocks are held lets it grow.
    """

    def __init__(self, n_blocks: int) -> None:
        if n_blocks < 2:
            raise ValueError(f"a KV pool of {n_blocks} blocks holds nothing: block 0 is reserved")
        self.n_usable = n_blocks - 1
        self.refs = [0] * n_blocks
        self.key_of: list[bytes | None] = [None] * n_blocks
        self.owner_of = [NOBODY] * n_blocks
        self.clean = list(range(n_blocks - 1, 0, -1))
        self.lru: OrderedDict[int, None] = OrderedDict()
        self.departing: dict[int, None] = {}
        self.copying: set[int] = set()
        self.n_shared = 0
        self.n_taken = 0
        self.now_s = 0.0
        self._before_s = [0.0] * n_blocks  # each holder of a block has had this + now / holders

    def take(self, n: int, owner: Owner) -> list[int]:
        """Hand out `n` clean blocks; the caller has made sure that there are so many."""
        if not n:
            return []
        clean, refs, owner_of = self.clean, self.refs, self.owner_of
        before_s, begun_s = self._before_s, -self.now_s
        self.n_taken += n
        blocks = clean[: -n - 1 : -1]
        del clean[-n:]
        for block in blocks:
            refs[block] = 1
            owner_of[block] = owner
            before_s[block] = begun_s
        return blocks

    def share(self, blocks: Iterable[int]) -> GivenBack:
        """One more holder for each block; returns from where those came that nobody held."""
        refs, lru, departing = self.refs, self.lru, self.departing
        before_s, now_s = self._before_s, self.now_s
        n_cached = n_departing = 0
        for block in blocks:
            n_holders = refs[block]
            refs[block] = n_holders + 1
            part_s = before_s[block] + now_s / n_holders if n_holders else 0.0
            before_s[block] = part_s - now_s / (n_holders + 1)
            if n_holders == 1:
                self.n_shared += 1
            elif not n_holders:
                if block in departing:
                    del departing[block]
                    n_departing += 1
                else:
                    del lru[block]
                    n_cached += 1
        return GivenBack(0, n_cached, n_departing)

    def give_back(self, blocks: Sequence[int]) -> GivenBack:
        """One holder fewer for each block, last one first: leaves are evicted before their parents.

        Raises:
            ValueError: nobody holds one of them (double free, or never handed out).
        """
        refs, key_of, clean, lru, copying = self.refs, self.key_of, self.clean, self.lru, self.copying
        n_clean = n_cached = n_departing = 0
        for block in reversed(blocks):
            n_holders = refs[block] - 1
            if n_holders < 0:
                raise ValueError(f"block {block} is given back but nobody holds it")
            refs[block] = n_holders
            if n_holders:
                self._before_s[block] += self.now_s / (n_holders + 1) - self.now_s / n_holders
                if n_holders == 1:
                    self.n_shared -= 1
            elif copying and block in copying:
                self.departing[block] = None
                n_departing += 1
            elif key_of[block] is None:
                clean.append(block)
                n_clean += 1
            else:
                lru[block] = None
                n_cached += 1
        return GivenBack(n_clean, n_cached, n_departing)

    def seconds(self, blocks: Iterable[int]) -> float:
        """One holder's part of the time that these held blocks have been held, added up.

        What it was when the holder came is to be taken off; of a block that nobody held before that is nothing.
        """
        refs, before_s, now_s = self.refs, self._before_s, self.now_s
        return sum([before_s[block] + now_s / refs[block] for block in blocks])

    def clean_up(self, block: int) -> None:
        """A cached block that has lost its key can be taken."""
        del self.lru[block]
        self.clean.append(block)

    def settle(self) -> Iterator[tuple[int, bool]]:
        """All planned copies are done; yields (block, whether it is cached) for each that was departing."""
        self.copying.clear()
        departing, self.departing = self.departing, {}
        for block in departing:
            cached = self.key_of[block] is not None
            if cached:
                self.lru[block] = None
            else:
                self.clean.append(block)
            yield block, cached

    def audit(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless the invariant holds and `tables` are all that holds blocks."""
        counted = [0] * len(self.refs)
        for table in tables:
            assert len(set(table)) == len(table), f"a block is in a table twice: {table}"
            for block in table:
                counted[block] += 1
        assert counted == self.refs, "references are not what the tables hold"
        assert self.n_shared == sum(n > 1 for n in counted)
        places = [*self.clean, *self.lru, *self.departing, *(b for b, n in enumerate(counted) if n)]
        assert sorted(places) == list(range(1, self.n_usable + 1)), "a block is in no place, or in two"
        assert all(self.key_of[block] is None for block in self.clean)
        assert all(self.key_of[block] is not None for block in self.lru)
        assert self.departing.keys() <= self.copying
