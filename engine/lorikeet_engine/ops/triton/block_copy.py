"""Whole KV blocks between the pages of all layers and one slab: what swaps and forks move.

    page_pointers(tensors) -> int64 [N] on their device
    gather_blocks(pointers=int64 [N], blocks=int64 [n], slab=[n, N, block elements]) -> None
    scatter_blocks(slab=[n, N, block elements], blocks=int64 [n], pointers=int64 [N]) -> None

`pointers` addresses the N tensors (K and V of every layer), each [blocks, KV heads, block, D] without gaps. A swap is
one gather and one DMA of a slab, or the other way round; a copy from block to block is a gather and a scatter, so that
every source is read as it was before. Bytes are moved as 8-byte words: no dtype, no rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import triton
import triton.language as tl

WORD: Final = torch.int64
WORDS_AT_ONCE: Final = 1024


def page_pointers(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where the pages of each tensor begin. The tensors must outlive it."""
    first = tensors[0]
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(f"pages must be alike and contiguous, not {tuple(tensor.shape)}, {tensor.stride()}")
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64, device=first.device)


def gather_blocks(*, pointers: torch.Tensor, blocks: torch.Tensor, slab: torch.Tensor) -> None:
    """slab[i, n] = block blocks[i] of tensor n."""
    _launch(pointers, blocks, slab, gather=True)


def scatter_blocks(*, slab: torch.Tensor, blocks: torch.Tensor, pointers: torch.Tensor) -> None:
    """Block blocks[i] of tensor n = slab[i, n]; the blocks differ from each other."""
    _launch(pointers, blocks, slab, gather=False)


def _launch(pointers: torch.Tensor, blocks: torch.Tensor, slab: torch.Tensor, *, gather: bool) -> None:
    n_tensors, n_blocks = pointers.numel(), blocks.numel()
    if slab.shape[:2] != (n_blocks, n_tensors) or not slab.is_contiguous():
        raise ValueError(f"a slab of shape {tuple(slab.shape)} does not hold {n_blocks} blocks of {n_tensors} tensors")
    block_bytes = slab[0, 0].nbytes if n_blocks else 0
    if block_bytes % WORD.itemsize:
        raise ValueError(f"blocks of {block_bytes} bytes are not whole words of {WORD.itemsize}")
    if n_blocks == 0:
        return
    words = block_bytes // WORD.itemsize
    block_copy_kernel[(n_blocks, n_tensors, triton.cdiv(words, WORDS_AT_ONCE))](
        pointers, blocks, slab.view(WORD), N_TENSORS=n_tensors, WORDS=words, AT_ONCE=WORDS_AT_ONCE, GATHER=gather
    )


@triton.jit(do_not_specialize_on_alignment=["blocks"])
def block_copy_kernel(
    pointers: tl.tensor,
    blocks: tl.tensor,
    slab: tl.tensor,
    N_TENSORS: tl.constexpr,
    WORDS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    GATHER: tl.constexpr,
) -> None:
    index, tensor = tl.program_id(0).to(tl.int64), tl.program_id(1)
    word = tl.program_id(2) * AT_ONCE + tl.arange(0, AT_ONCE)
    mask = word < WORDS
    # An allocation begins at a multiple of 16 bytes, which a loaded number cannot tell the compiler.
    start = tl.multiple_of(tl.load(pointers + tensor).to(tl.pointer_type(tl.int64)), 16)
    page = start + tl.load(blocks + index) * WORDS + word
    held = slab + (index * N_TENSORS + tensor) * WORDS + word
    if GATHER:
        tl.store(held, tl.load(page, mask=mask, other=0), mask=mask)
    else:
        tl.store(page, tl.load(held, mask=mask, other=0), mask=mask)
