"""How large an adapter is in the arena, and where each of its blocks lies: arithmetic without tensors.

    extent = head | block | block | ...      everything begins on a grain of 16 elements
    head   = int32[layers][7][2]: grain of the block from the extent's start (0 = absent), rank | flags << 16
    block  = A[rank, in] | Bt[rank, out] | float32[out] with a flag

The head is never empty, so no block begins at grain 0 and 0 can mean absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lorikeet_adapters.modules import MODULES

GRAIN: Final = 16
MAX_RANK: Final = 0xFFFF  # the head keeps the rank in 16 bits and flags above them
FLAG_SHIFT: Final = 16
BIAS: Final = 1  # the block's vector is added to the output
DORA: Final = 2  # the block's vector times what the base weight gave is added

_HEAD_ENTRY_BYTES: Final = 8
_VECTOR_ITEM_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class BlockShape:
    """One LoRA pair, perhaps with a vector: which module it belongs to and how large it is."""

    layer: int
    module: str
    rank: int
    in_features: int
    out_features: int
    has_vector: bool = False


@dataclass(frozen=True, slots=True)
class ExtentPlan:
    """The grain at which every block begins, in the order given, and the length of the whole extent."""

    starts: tuple[int, ...]
    n_grains: int


def plan_extent(n_layers: int, itemsize: int, blocks: Iterable[BlockShape]) -> ExtentPlan:
    """Lay blocks out one after another behind the head, for elements of `itemsize` bytes."""
    position = head_grains(n_layers, itemsize)
    starts = []
    for block in blocks:
        starts.append(position)
        position += block_grains(block, itemsize)
    return ExtentPlan(tuple(starts), position)


def extent_grains(n_layers: int, itemsize: int, blocks: Iterable[BlockShape]) -> int:
    """Grains of a whole extent."""
    return plan_extent(n_layers, itemsize, blocks).n_grains


def head_grains(n_layers: int, itemsize: int) -> int:
    """Grains of the head, which is int32 whatever the arena holds."""
    return _ceil_div(n_layers * len(MODULES) * _HEAD_ENTRY_BYTES, GRAIN * itemsize)


def block_grains(block: BlockShape, itemsize: int) -> int:
    """Grains of one pair and of its vector, which is float32 whatever the arena holds."""
    matrices = itemsize * block.rank * (block.in_features + block.out_features)
    vector = _VECTOR_ITEM_BYTES * block.out_features if block.has_vector else 0
    return _ceil_div(matrices + vector, GRAIN * itemsize)


def _ceil_div(value: int, unit: int) -> int:
    return -(-value // unit)
