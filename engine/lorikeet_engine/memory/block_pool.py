"""Which KV blocks are free. Block 0 is never handed out: padding may point at it."""

from __future__ import annotations


class BlockPool:
    """A stack of free block ids, most recently freed first.

    Invariant: an id is either in the free list once, or held by exactly one caller.
    """

    def __init__(self, n_blocks: int) -> None:
        if n_blocks < 2:
            raise ValueError(f"a KV pool of {n_blocks} blocks holds nothing: block 0 is reserved")
        self.n_usable = n_blocks - 1
        self._free = list(range(n_blocks - 1, 0, -1))
        self._held: set[int] = set()

    @property
    def n_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """Hand out one block; the caller has made sure that one is free (`n_free`)."""
        block = self._free.pop()
        self._held.add(block)
        return block

    def give_back(self, block: int) -> None:
        """Return a block.

        Raises:
            ValueError: the block is not out (double free, or never handed out).
        """
        if block not in self._held:
            raise ValueError(f"block {block} is given back but nobody holds it")
        self._held.remove(block)
        self._free.append(block)
