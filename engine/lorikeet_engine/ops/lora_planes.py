"""How the LoRA kernels of a GPU cut a step, and the memory that takes: arithmetic that the memory table needs as well.

Shrink splits its sum over the inputs in parts, each in a plane of its own (see `triton.lora`).
"""

from __future__ import annotations

from lorikeet_adapters.manifest import GRAIN

LOW, HIGH = 16, 64  # rows of a tile
MAX_LOW_TOKENS = 256  # a step of more has high tiles
MAX_SLICES = 3
MAX_SPLIT = {LOW: 16, HIGH: 4}


def tile_height(n_tokens: int) -> int:
    return LOW if n_tokens <= MAX_LOW_TOKENS else HIGH


def rank_stride(max_rank: int) -> int:
    """Whole grains, so that planes are read in aligned pieces."""
    return -(-max_rank // GRAIN) * GRAIN


def planes_size(n_tokens: int, max_rank: int) -> int:
    """Float32 numbers that the planes of any linear need in steps of up to `n_tokens`."""
    rows = min(n_tokens, MAX_LOW_TOKENS) * MAX_SPLIT[LOW]
    if n_tokens > MAX_LOW_TOKENS:
        rows = max(rows, n_tokens * MAX_SPLIT[HIGH])
    return rows * MAX_SLICES * rank_stride(max_rank)
