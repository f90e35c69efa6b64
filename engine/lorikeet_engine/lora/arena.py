"""The bytes of resident adapters: one flat tensor, counted in grains of 16 elements.

Where an extent may lie is decided by `memory.adapters.arena`, which deals in grains only; this side writes, moves and
reads what lies there. An extent is head | blocks (layout in the architecture, section 8) and holds no absolute
offset, so moving it is a copy. The host keeps a copy of every head, since following it on the tensor would cost a
read per module; offsets are kept, never views, because a view is stale after a move.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from lorikeet_adapters.manifest import BIAS, DORA, FLAG_SHIFT, GRAIN, MAX_RANK
from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_engine.ops.interface import HeadEntry, SiteShape

Head = tuple[tuple[HeadEntry, ...], ...]
VECTOR_ITEMSIZE = 4  # bytes of a float32
SCRATCH_GRAINS = 1 << 20  # 32 MiB in 16 bits

Run = Callable[[Callable[[], object]], None]


def at_once(work: Callable[[], object]) -> None:
    work()


class LoraArena:
    """One device buffer; `extent` arguments and `base` are grains."""

    def __init__(self, *, table: ModuleTable, pool_bytes: int, dtype: torch.dtype, device: torch.device | str) -> None:
        self._widths = tuple((table.linears[name].in_features, table.linears[name].out_features) for name in MODULES)
        self._n_layers = table.n_layers
        self.n_grains = pool_bytes // (GRAIN * dtype.itemsize)
        self.storage = torch.zeros(self.n_grains * GRAIN, dtype=dtype, device=device)
        self._heads: dict[int, Head] = {}
        self._sizes: dict[int, int] = {}

    def write(self, base_grain: int, extent: torch.Tensor, *, run: Run = at_once) -> None:
        """Copy a packed adapter to `base_grain`; whatever was known of the grains it covers is forgotten.

        The copy itself is handed to `run`, which sees to it that it comes at the right time.
        """
        n_grains, rest = divmod(extent.numel(), GRAIN)
        if rest or extent.dtype != self.storage.dtype:
            raise ValueError(
                f"an extent of {extent.numel()} {extent.dtype} does not fit an arena of {self.dtype} grains"
            )
        self._check(base_grain, n_grains)
        head = self._read_head(extent, n_grains)
        self._forget(base_grain, n_grains)
        run(partial(self._piece(base_grain, n_grains).copy_, extent, non_blocking=True))
        self._heads[base_grain], self._sizes[base_grain] = head, n_grains

    def move(self, src: int, dst: int, n_grains: int, *, run: Run = at_once) -> None:
        """Move one extent; source and target may overlap. The copies are handed to `run`."""
        if self._sizes.get(src) != n_grains:
            raise ValueError(f"no extent of {n_grains} grains at {src}")
        self._check(dst, n_grains)
        head = self._heads[src]
        if src != dst:
            run(partial(self._move_bytes, src, dst, n_grains))
        self._forget(src, n_grains)
        self._forget(dst, n_grains)
        self._heads[dst], self._sizes[dst] = head, n_grains

    def _move_bytes(self, src: int, dst: int, n_grains: int) -> None:
        """In pieces no longer than the gap, from the side that the target leaves first: torch refuses an overlapping
        copy. By way of a scratch tensor where the gap is so small that the pieces would be many."""
        gap = abs(dst - src)
        scratch = None
        if gap < min(n_grains, SCRATCH_GRAINS):
            gap = SCRATCH_GRAINS
            scratch = torch.empty(min(n_grains, gap) * GRAIN, dtype=self.dtype, device=self.storage.device)
        starts = range(0, n_grains, gap)
        for start in starts if dst < src else reversed(starts):
            length = min(gap, n_grains - start)
            source, target = self._piece(src + start, length), self._piece(dst + start, length)
            if scratch is not None:
                source = scratch[: length * GRAIN].copy_(source)
            target.copy_(source)

    def head(self, base: int) -> Head:
        """`head[layer][module]` of the extent at `base`."""
        return self._heads[base]

    def site(self, modules: tuple[int, ...]) -> SiteShape:
        """The fused linear made of these modules, in this order."""
        slices, column = [], 0
        for module in modules:
            slices.append((module, column, self._widths[module][1]))
            column += self._widths[module][1]
        return SiteShape(self._widths[modules[0]][0], tuple(slices))

    @property
    def dtype(self) -> torch.dtype:
        return self.storage.dtype

    def _read_head(self, extent: torch.Tensor, n_grains: int) -> Head:
        """Read the head and check that every block lies inside the extent: views past it would read a neighbour."""
        n_ints = self._n_layers * len(MODULES) * 2
        if n_grains * GRAIN * extent.dtype.itemsize < 4 * n_ints:
            raise ValueError(f"an extent of {n_grains} grains is shorter than its head")
        numbers = extent.view(torch.int32)[:n_ints].view(self._n_layers, len(MODULES), 2).tolist()
        head = tuple(
            tuple(HeadEntry(rel, word & MAX_RANK, word >> FLAG_SHIFT) for rel, word in modules) for modules in numbers
        )
        for layer, modules in enumerate(head):
            for module, entry in enumerate(modules):
                if entry.rank and not (entry.rel > 0 and self._end(module, entry) <= n_grains * GRAIN):
                    raise ValueError(f"head of layer {layer}, {MODULES[module]}: {entry} leaves the extent")
                if entry.flags not in ((0, BIAS, DORA) if entry.rank else (0,)):
                    raise ValueError(f"head of layer {layer}, {MODULES[module]}: {entry} has flags that say nothing")
        return head

    def _end(self, module: int, entry: HeadEntry) -> int:
        """Elements from the extent's start to the end of one module's block."""
        n_in, n_out = self._widths[module]
        vector = n_out * VECTOR_ITEMSIZE // self.dtype.itemsize if entry.flags else 0
        return entry.rel * GRAIN + entry.rank * (n_in + n_out) + vector

    def _check(self, base: int, n_grains: int) -> None:
        if base < 0 or base + n_grains > self.n_grains:
            raise ValueError(f"grains {base}..{base + n_grains} leave an arena of {self.n_grains}")

    def _forget(self, base: int, n_grains: int) -> None:
        """Drop the heads of extents that overlap these grains: their bytes are no longer theirs."""
        for start in [s for s, size in self._sizes.items() if s < base + n_grains and base < s + size]:
            del self._heads[start], self._sizes[start]

    def _piece(self, grain: int, n_grains: int) -> torch.Tensor:
        return self.storage[grain * GRAIN : (grain + n_grains) * GRAIN]
