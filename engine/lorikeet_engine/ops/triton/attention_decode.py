"""Attention of rows with one query token: split over the keys, then merged.

    attend_decode(q=[B, H, D], k_cache=, v_cache=, contexts=int64 [B], block_tables=int64 [B, W], scale=,
                  out=[B, H, D], window=0, config=None) -> None
    default_config(width=, group=, dtype=) -> DecodeConfig

One program takes a row, a KV head with all its query heads, and splits of the row's keys (flash-decoding, Dao et al.
2023); a second kernel merges the splits by their log-sum-exp. How a row is split depends on its own length and
nothing else, so that a row's result is the same bits whatever runs beside it. The grid depends on the rows and on what
the block table allows; a recorded step replays with other contexts. A step's integers are slices of one buffer and lie
where they lie: kernels are not compiled anew for their alignment.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from lorikeet_engine.ops.triton.attention_step import (
    LOG2_E,
    SMALLEST_DOT,
    attend_tile,
    check_pages,
    load_queries,
    normalised,
    nothing_seen,
    power_of_2,
)
from lorikeet_engine.ops.triton.target import INTERPRETED, dot_operand, to_out

# Splits that the merging kernel reads at a time.
MERGED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """A row has at most `max_splits` splits, each of at least `split_min` keys (a multiple of block_n).

    `programs` is how many the grid aims at: with many rows one takes several splits, so that few find nothing to do.
    It decides nothing about the bits.
    """

    block_n: int
    num_warps: int
    num_stages: int
    split_min: int = 256
    max_splits: int = 32
    programs: int = 4096


def default_config(*, width: int, group: int, dtype: torch.dtype) -> DecodeConfig:
    """What is used where no measured entry exists."""
    if dtype == torch.float32:
        return DecodeConfig(block_n=16, num_warps=4, num_stages=2)
    if power_of_2(width) > 128 or group > SMALLEST_DOT:
        return DecodeConfig(block_n=32, num_warps=8, num_stages=2)
    return DecodeConfig(block_n=64, num_warps=4, num_stages=3)


def split_plan(context: int, window: int, config: DecodeConfig) -> tuple[int, int, int]:
    """(first key, keys per split, splits) of a row, as the kernels compute it."""
    start = max(context - window, 0) // config.block_n * config.block_n if window else 0
    length = context - start
    per_split = max(-(-length // (config.max_splits * config.block_n)) * config.block_n, config.split_min)
    return start, per_split, -(-length // per_split)


def split_capacity(max_context: int, window: int, config: DecodeConfig) -> int:
    """The most splits that any row of at most `max_context` tokens has."""
    length = min(max_context, window + config.block_n - 1) if window else max_context
    return max(1, min(config.max_splits, -(-length // config.split_min)))


def attend_decode(
    *,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    contexts: torch.Tensor,
    block_tables: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    window: int = 0,
    config: DecodeConfig | None = None,
) -> None:
    """Row b's query over its first contexts[b] keys, the last `window` of them if that is not 0; context 0 gives zeros.

    `out` is contiguous. `config` decides how sums are cut: a row's bits depend on it, so it must be the same for steps
    of any size.
    """
    check_pages(q, k_cache, v_cache)
    n_rows, n_heads, width = q.shape
    if n_rows == 0:
        return
    n_kv_heads, block = k_cache.shape[1:3]
    group = n_heads // n_kv_heads
    config = config or default_config(width=width, group=group, dtype=k_cache.dtype)
    splits = split_capacity(block_tables.shape[1] * block, window, config)
    # The splits' results and their log2-sum-exp2. Never cleared: what is merged was written by the same call.
    cells = (n_rows, n_heads, splits if splits > 1 else 0)
    partial_out = torch.empty(*cells, width, dtype=torch.float32, device=q.device)
    lse = torch.empty(cells, dtype=torch.float32, device=q.device)
    shape = {
        "HEADS": n_heads,
        "D": width,
        "WIDTH": power_of_2(width),
        "BLOCK_N": config.block_n,
        "SPLIT_MIN": config.split_min,
        "MAX_SPLITS": config.max_splits,
        "WINDOW": window,
        "UPCAST": INTERPRETED,
    }
    at_once = min(splits, triton.cdiv(config.programs, n_rows * n_kv_heads))
    decode_split_kernel[(n_rows, n_kv_heads, at_once)](
        q, k_cache, v_cache, contexts, block_tables, out, partial_out, lse,
        scale * LOG2_E, splits, q.stride(0), block_tables.stride(0),
        GROUP=group, BLOCK_M=power_of_2(group), STRIDE_BLOCK=k_cache.stride(0), BLOCK=block,
        num_warps=config.num_warps, num_stages=config.num_stages, **shape,
    )  # fmt: skip
    if splits > 1:
        merge = decode_merge_kernel[(n_rows, n_heads)]
        merge(contexts, out, partial_out, lse, splits, CHUNK=MERGED_AT_ONCE, num_warps=4, **shape)


@triton.jit
def split_of_row(
    context: tl.tensor, BLOCK_N: tl.constexpr, SPLIT_MIN: tl.constexpr, MAX_SPLITS: tl.constexpr, WINDOW: tl.constexpr
) -> tl.tensor:
    """`split_plan` on the device."""
    start = context * 0
    if WINDOW > 0:
        start = tl.maximum(context - WINDOW, 0) // BLOCK_N * BLOCK_N
    length = context - start
    per_split = tl.maximum(tl.cdiv(length, MAX_SPLITS * BLOCK_N) * BLOCK_N, SPLIT_MIN)
    return start, per_split, tl.cdiv(length, per_split)


@triton.jit(do_not_specialize=["capacity", "stride_table"], do_not_specialize_on_alignment=["contexts", "block_tables"])
def decode_split_kernel(
    queries: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    contexts: tl.tensor,
    block_tables: tl.tensor,
    out: tl.tensor,
    partial_out: tl.tensor,
    lse: tl.tensor,
    scale: tl.tensor,
    capacity: tl.tensor,
    stride_query: tl.tensor,
    stride_table: tl.tensor,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIDE_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT_MIN: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """Program (row, KV head, n): every so many-th split of the row from the n-th on, as many as the grid has."""
    row, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    context = tl.load(contexts + row).to(tl.int32)
    start, per_split, n_splits = split_of_row(context, BLOCK_N, SPLIT_MIN, MAX_SPLITS, WINDOW)
    # A row of padding has one split without keys, whose result is zero.
    n_splits = tl.maximum(n_splits, 1)
    if tl.program_id(2) >= n_splits:
        return
    member, d = tl.arange(0, BLOCK_M), tl.arange(0, WIDTH)
    inside, heads = member < GROUP, kv_head * GROUP + member
    cells = row * HEADS + heads
    stored = inside[:, None] & (d < D)[None, :]
    q = dot_operand(load_queries(queries, row, heads, inside, stride_query, D, WIDTH), UPCAST)
    keys, values = k_cache + kv_head * BLOCK * D, v_cache + kv_head * BLOCK * D
    table = block_tables + row * stride_table
    last = tl.zeros([BLOCK_M], tl.int32) + (context - 1)
    for split in range(tl.program_id(2), n_splits, tl.num_programs(2)):
        low = start + split * per_split
        high = tl.minimum(low + per_split, context)
        top, total, acc = nothing_seen(BLOCK_M, WIDTH)
        for first in range(low, high, BLOCK_N):
            positions = first + tl.arange(0, BLOCK_N)
            top, total, acc = attend_tile(
                q, top, total, acc, table, keys, values, positions, high, last, scale,
                STRIDE_BLOCK, BLOCK, D, WIDTH, WINDOW, True, UPCAST,
            )  # fmt: skip
        result = normalised(total, acc)
        if n_splits > 1:
            parts = cells * capacity + split
            tl.store(partial_out + parts[:, None] * D + d[None, :], result, mask=stored)
            tl.store(lse + parts, top + tl.log2(total), mask=inside)
        else:
            rounded = to_out(result, out.dtype.element_ty, UPCAST)
            tl.store(out + cells[:, None] * D + d[None, :], rounded, mask=stored)


@triton.jit(do_not_specialize=["capacity"], do_not_specialize_on_alignment=["contexts"])
def decode_merge_kernel(
    contexts: tl.tensor,
    out: tl.tensor,
    partial_out: tl.tensor,
    lse: tl.tensor,
    capacity: tl.tensor,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT_MIN: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
    WINDOW: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """The splits' mean, weighted by their exp2(lse); rows of one split are complete already."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    context = tl.load(contexts + row).to(tl.int32)
    _, _, n_splits = split_of_row(context, BLOCK_N, SPLIT_MIN, MAX_SPLITS, WINDOW)
    if n_splits <= 1:
        return
    d = tl.arange(0, WIDTH)
    cell = row * HEADS + head
    top = float("-inf")
    for first in range(0, n_splits, CHUNK):
        splits = first + tl.arange(0, CHUNK)
        part = tl.load(lse + cell * capacity + splits, mask=splits < n_splits, other=float("-inf"))
        top = tl.maximum(top, tl.max(part, 0))
    shift = tl.where(top == float("-inf"), 0.0, top)
    total = 0.0
    acc = tl.zeros([WIDTH], tl.float32)
    for first in range(0, n_splits, CHUNK):
        splits = first + tl.arange(0, CHUNK)
        live = splits < n_splits
        part = tl.load(lse + cell * capacity + splits, mask=live, other=float("-inf"))
        weights = tl.exp2(part - shift)
        address = partial_out + (cell * capacity + splits)[:, None] * D + d[None, :]
        values = tl.load(address, mask=live[:, None] & (d < D)[None, :], other=0.0)
        total += tl.sum(weights, 0)
        acc += tl.sum(values * weights[:, None], 0)
    result = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(out + cell * D + d, to_out(result, out.dtype.element_ty, UPCAST), mask=d < D)
