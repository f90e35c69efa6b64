"""Which stretch of the adapter arena belongs to which adapter: contiguous, relocatable extents, in grains.

Knows no tensors: `lora.arena` holds the bytes and carries out the moves that `join_gaps` asks for.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import NamedTuple

from lorikeet_engine.identity import AdapterKey


class Extent(NamedTuple):
    """`n_grains` grains from `base`."""

    base: int
    n_grains: int

    @property
    def end(self) -> int:
        return self.base + self.n_grains


@dataclass(frozen=True, slots=True)
class Move:
    """Copy `n_grains` grains from `source` down to `target`; the two may overlap."""

    key: AdapterKey
    source: int
    target: int
    n_grains: int


class AdapterArena:
    """Best-fit allocation of extents over `n_grains` grains.

    Invariant: extents and gaps cover the arena without overlap, and no two gaps touch. Gaps are kept in order of
    address and of size, so that taking and giving back an extent looks at its neighbours only.
    """

    def __init__(self, n_grains: int) -> None:
        self.n_grains = n_grains
        self.n_free = n_grains
        self._extents: dict[AdapterKey, Extent] = {}
        self._bases: list[int] = []  # of the extents, ascending
        self._at: dict[int, AdapterKey] = {}
        self._gaps: list[Extent] = []  # by base
        self._gap_sizes: list[tuple[int, int]] = []  # (size, base), ascending
        if n_grains:
            self._insert_gap(Extent(0, n_grains))

    @property
    def largest_gap(self) -> int:
        return self._gap_sizes[-1][0] if self._gap_sizes else 0

    def extents(self) -> dict[AdapterKey, Extent]:
        return dict(self._extents)

    def gaps(self) -> list[Extent]:
        return list(self._gaps)

    def base(self, key: AdapterKey) -> int:
        return self._extents[key].base

    def allocate(self, key: AdapterKey, n_grains: int) -> int | None:
        """Place `key` into the smallest gap that holds it; None when no single gap does."""
        if key in self._extents:
            raise ValueError(f"adapter {key.digest} has an extent already")
        if n_grains < 1:
            raise ValueError(f"an extent of {n_grains} grains holds nothing")
        index = bisect_left(self._gap_sizes, (n_grains, 0))
        if index == len(self._gap_sizes):
            return None
        size, base = self._gap_sizes[index]
        self._remove_gap(Extent(base, size))
        if size > n_grains:
            self._insert_gap(Extent(base + n_grains, size - n_grains))
        self._insert_extent(key, Extent(base, n_grains))
        self.n_free -= n_grains
        return base

    def free(self, key: AdapterKey) -> int:
        """Give the extent back and return its size in grains."""
        extent = self._extents[key]
        self._remove_extent(key, extent)
        self.n_free += extent.n_grains
        base, end = extent.base, extent.end
        index = bisect_left(self._gaps, extent)
        after = self._gaps[index] if index < len(self._gaps) else None
        before = self._gaps[index - 1] if index else None
        if after and after.base == end:
            end = after.end
            self._remove_gap(after)
        if before and before.end == base:
            base = before.base
            self._remove_gap(before)
        self._insert_gap(Extent(base, end - base))
        return extent.n_grains

    def join_gaps(self, n_grains: int) -> list[Move]:
        """Make one gap of at least `n_grains` by moving as few grains as possible; the caller knows they are free.

        A run of neighbouring gaps becomes one when the extents between them move down to the first gap, in ascending
        order of address; extents outside the run stay where they are.
        """
        if n_grains > self.n_free:
            raise ValueError(f"{n_grains} grains are asked for, {self.n_free} are free")
        run = self._cheapest_run(n_grains)
        floor, end = run[0].base, run[-1].end
        for gap in run:
            self._remove_gap(gap)
        moves = []
        first, last = bisect_left(self._bases, floor), bisect_left(self._bases, end)
        for base in self._bases[first:last]:
            key = self._at[base]
            extent = self._extents[key]
            moves.append(Move(key, base, floor, extent.n_grains))
            self._remove_extent(key, extent)
            self._insert_extent(key, Extent(floor, extent.n_grains))
            floor += extent.n_grains
        self._insert_gap(Extent(floor, end - floor))
        return moves

    def _cheapest_run(self, n_grains: int) -> list[Extent]:
        """The neighbouring gaps of `n_grains` together that have the fewest held grains between them."""
        best: tuple[int, int, int] | None = None  # (grains to move, first, last)
        first, free = 0, 0
        for last, gap in enumerate(self._gaps):
            free += gap.n_grains
            while free - self._gaps[first].n_grains >= n_grains:
                free -= self._gaps[first].n_grains
                first += 1
            if free >= n_grains:
                held = gap.end - self._gaps[first].base - free
                if best is None or held < best[0]:
                    best = (held, first, last)
        assert best is not None, "the gaps together hold what is free"
        return self._gaps[best[1] : best[2] + 1]

    def _insert_extent(self, key: AdapterKey, extent: Extent) -> None:
        self._extents[key] = extent
        self._at[extent.base] = key
        insort(self._bases, extent.base)

    def _remove_extent(self, key: AdapterKey, extent: Extent) -> None:
        del self._extents[key], self._at[extent.base]
        del self._bases[bisect_left(self._bases, extent.base)]

    def _insert_gap(self, gap: Extent) -> None:
        insort(self._gaps, gap)
        insort(self._gap_sizes, (gap.n_grains, gap.base))

    def _remove_gap(self, gap: Extent) -> None:
        del self._gaps[bisect_left(self._gaps, gap)]
        del self._gap_sizes[bisect_left(self._gap_sizes, (gap.n_grains, gap.base))]
