"""What both attention kernels share: one tile of keys and values through the running softmax.

Scores are kept in the exp2 domain (`scale` includes log2 e) and the softmax is the online one of Milakov and
Gimelshein (arXiv:1805.02867, algorithm 3), used as in FlashAttention (arXiv:2205.14135). Keys and values are read from
pages [blocks, KV heads, block, D] through a row of the block table; strides of the pages are constants, so that the
compiler proves the alignment that 16-byte asynchronous copies need.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from lorikeet_engine.ops.triton.target import dot_operand, to_out

LOG2_E: Final = 1.4426950408889634
# tl.dot's smallest side.
SMALLEST_DOT: Final = 16


def power_of_2(least: int) -> int:
    """The next one, and no smaller than what `tl.dot` takes."""
    return max(SMALLEST_DOT, 1 << (least - 1).bit_length())


def check_pages(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    """The kernels take the block's stride and nothing else about the layout."""
    _, n_kv_heads, block, width = k_cache.shape
    inner = (block * width, width, 1)
    if k_cache.stride()[1:] != inner or k_cache.stride() != v_cache.stride() or k_cache.shape != v_cache.shape:
        raise ValueError(
            f"pages must be [blocks, KV heads, block, D] without gaps inside a block, not {k_cache.stride()}"
        )
    if q.shape[2] != width or q.stride()[1:] != (width, 1) or q.shape[1] % n_kv_heads:
        raise ValueError(
            f"queries of shape {tuple(q.shape)}, strides {q.stride()} do not fit {n_kv_heads} heads of {width}"
        )


@triton.jit
def nothing_seen(ROWS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """(largest score, sum of weights, weighted sum of values) before the first key."""
    return tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)


@triton.jit
def load_queries(
    queries: tl.tensor,
    token: tl.tensor,
    heads: tl.tensor,
    inside: tl.tensor,
    stride: tl.tensor,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
) -> tl.tensor:
    """Rows (token, head) of q [T, H, D], zero where `inside` is false."""
    d = tl.arange(0, WIDTH)
    offsets = token.to(tl.int64) * stride + heads * D
    return tl.load(queries + offsets[:, None] + d[None, :], mask=inside[:, None] & (d < D)[None, :], other=0.0)


@triton.jit
def load_page_rows(
    pages: tl.tensor, slots: tl.tensor, real: tl.tensor, D: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr
) -> tl.tensor:
    """Slots' keys or values [N, WIDTH]; what is masked is zero, since 0 * NaN of an unwritten slot would be NaN."""
    d = tl.arange(0, WIDTH)
    address = pages + slots[:, None] + d[None, :]
    if MASKED and D == WIDTH:
        return tl.load(address, mask=real[:, None], other=0.0)
    elif MASKED:
        return tl.load(address, mask=real[:, None] & (d < D)[None, :], other=0.0)
    elif D == WIDTH:
        return tl.load(address)
    else:
        return tl.load(address, mask=(d < D)[None, :], other=0.0)


@triton.jit
def attend_tile(
    q: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
    table: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    positions: tl.tensor,
    end: tl.tensor,
    query_positions: tl.tensor,
    scale: tl.tensor,
    STRIDE_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    MASKED: tl.constexpr,
    UPCAST: tl.constexpr,
) -> tl.tensor:
    """(top, total, acc) after the keys at `positions`; MASKED = some may lie at `end` or beyond, or after a query.

    `keys` and `values` point at one KV head of block 0, `table` at the row's block table.
    """
    real = positions < end
    # Entries beyond the row's blocks are never read: a table may end there.
    blocks = tl.load(table + positions // BLOCK, mask=real if MASKED else None, other=0 if MASKED else None)
    slots = blocks * STRIDE_BLOCK + (positions % BLOCK) * D
    k = load_page_rows(keys, slots, real, D, WIDTH, MASKED)
    v = load_page_rows(values, slots, real, D, WIDTH, MASKED)
    scores = tl.dot(q, tl.trans(dot_operand(k, UPCAST)), input_precision="ieee") * scale
    if MASKED:
        scores = tl.where((positions[None, :] <= query_positions[:, None]) & real[None, :], scores, float("-inf"))
    if WINDOW > 0:
        scores = tl.where(positions[None, :] > query_positions[:, None] - WINDOW, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    # A query that has seen no key yet: -inf - (-inf) would be NaN.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp2(scores - shift[:, None])
    faded = tl.exp2(top - shift)
    total = total * faded + tl.sum(weights, 1)
    weights = dot_operand(to_out(weights, v.dtype, UPCAST), UPCAST)
    acc = tl.dot(weights, dot_operand(v, UPCAST), acc * faded[:, None], input_precision="ieee")
    return new_top, total, acc


@triton.jit
def normalised(total: tl.tensor, acc: tl.tensor) -> tl.tensor:
    """The weighted mean; zero for a query without keys."""
    return acc / tl.where(total == 0.0, 1.0, total)[:, None]
