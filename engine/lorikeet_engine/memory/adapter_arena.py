"""Which stretch of the adapter arena belongs to which adapter: contiguous, relocatable extents, in grains.

Knows no tensors: `lora.arena` holds the bytes and carries out the moves that `compact` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from lorikeet_engine.identity import AdapterKey


@dataclass(frozen=True, slots=True)
class Extent:
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

    Invariant: extents never overlap, and held plus free grains make up the arena.
    """

    def __init__(self, n_grains: int) -> None:
        self.n_grains = n_grains
        self._extents: dict[AdapterKey, Extent] = {}

    @property
    def n_free(self) -> int:
        return self.n_grains - sum(extent.n_grains for extent in self._extents.values())

    def extents(self) -> dict[AdapterKey, Extent]:
        return dict(self._extents)

    def base(self, key: AdapterKey) -> int:
        return self._extents[key].base

    def allocate(self, key: AdapterKey, n_grains: int) -> int | None:
        """Place `key` into the smallest gap that holds it; None when no single gap does."""
        if key in self._extents:
            raise ValueError(f"adapter {key.digest} has an extent already")
        gaps = [gap for gap in self._gaps() if gap.n_grains >= n_grains]
        if not gaps:
            return None
        gap = min(gaps, key=lambda g: (g.n_grains, g.base))
        self._extents[key] = Extent(gap.base, n_grains)
        return gap.base

    def free(self, key: AdapterKey) -> int:
        """Give the extent back and return its size in grains."""
        return self._extents.pop(key).n_grains

    def compact(self) -> list[Move]:
        """Close all gaps by moving extents down, in ascending order of address."""
        moves, floor = [], 0
        for key, extent in sorted(self._extents.items(), key=lambda item: item[1].base):
            if extent.base > floor:
                moves.append(Move(key, extent.base, floor, extent.n_grains))
                self._extents[key] = Extent(floor, extent.n_grains)
            floor += extent.n_grains
        return moves

    def _gaps(self) -> list[Extent]:
        gaps, floor = [], 0
        for extent in sorted(self._extents.values(), key=lambda e: e.base):
            if extent.base > floor:
                gaps.append(Extent(floor, extent.base - floor))
            floor = extent.end
        if floor < self.n_grains:
            gaps.append(Extent(floor, self.n_grains - floor))
        return gaps
