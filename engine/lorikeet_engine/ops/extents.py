"""Where the matrices of one module lie in the arena: the layout of a block, read as views.

A block is A [rank, in] | Bt [rank, out] | float32 [out] when it has a flag. Views are for use at once: they are stale
after the extent has moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine.ops.interface import HeadEntry


@dataclass(frozen=True, slots=True)
class Block:
    """`vector` is None in a block without a flag."""

    a: torch.Tensor
    bt: torch.Tensor
    vector: torch.Tensor | None


def block_at(arena: torch.Tensor, base: int, entry: HeadEntry, n_in: int, n_out: int) -> Block:
    """The block of a module that the adapter at grain `base` has."""
    start = GRAIN * (base + entry.rel)
    middle = start + entry.rank * n_in
    end = middle + entry.rank * n_out
    vector = None
    if entry.flags:
        n_elements = n_out * torch.float32.itemsize // arena.dtype.itemsize
        vector = arena[end : end + n_elements].view(torch.float32)
    return Block(arena[start:middle].view(entry.rank, n_in), arena[middle:end].view(entry.rank, n_out), vector)
