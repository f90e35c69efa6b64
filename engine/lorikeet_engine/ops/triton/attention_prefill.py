"""Attention of rows with several query tokens over their pages: prefix and fresh tokens alike.

    attend_prefill(q=[T, H, D], k_cache=, v_cache=, block_tables=int64 [B, W], tiles=int64 [N, 4], scale=, window=0,
                   out=[T, H, D], config=None) -> None
    prefill_tiles(query_starts=, context_lens=, rows=range, queries_per_tile=) -> list of 4-tuples for `tiles`
    PrefillConfig(...).queries_per_tile(group)
    default_config(width=, dtype=, window=0) -> PrefillConfig

One program takes a tile of queries with all heads of one KV head, packed as rows (query, head), so that a tile of keys
is read once for the whole group. Tiles of keys that every query sees run without the causal mask, those that none sees
not at all. The fresh keys are in the pages before this runs, hence one path for chunks, prefix hits and resumed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from lorikeet_engine.ops.triton.attention_step import (
    LOG2_E,
    attend_tile,
    check_pages,
    load_queries,
    normalised,
    nothing_seen,
    power_of_2,
)
from lorikeet_engine.ops.triton.target import INTERPRETED, dot_operand, to_out

# A tile that pads the list.
NO_TILE = (-1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """`block_m` rows (query, head) and `block_n` keys to a tile."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    def queries_per_tile(self, group: int) -> int:
        return self.rows(group) // group

    def rows(self, group: int) -> int:
        """`block_m`, or more where one query's heads would not fit."""
        return max(self.block_m, power_of_2(group))


def default_config(*, width: int, dtype: torch.dtype, window: int = 0) -> PrefillConfig:
    """What is used where no measured entry exists; as large as the compiler manages without spilling registers."""
    if dtype == torch.float32:
        wide = power_of_2(width) > 128
        return PrefillConfig(block_m=16 if wide else 32, block_n=16, num_warps=8 if wide else 4, num_stages=2)
    if power_of_2(width) > 128:
        return PrefillConfig(block_m=64, block_n=32, num_warps=8, num_stages=2)
    return PrefillConfig(block_m=128, block_n=32 if window else 64, num_warps=8, num_stages=2)


def prefill_tiles(
    *, query_starts: Sequence[int], context_lens: Sequence[int], rows: range, queries_per_tile: int
) -> list[tuple[int, int, int, int]]:
    """(row, first token, its position, queries) of each tile; a row's last tile, the longest, comes first."""
    tiles = []
    for row in rows:
        first, end = query_starts[row], query_starts[row + 1]
        offset = context_lens[row] - end
        for token in reversed(range(first, end, queries_per_tile)):
            tiles.append((row, token, token + offset, min(queries_per_tile, end - token)))
    return tiles


def attend_prefill(
    *,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    tiles: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    window: int = 0,
    config: PrefillConfig | None = None,
) -> None:
    """Writes `out` (contiguous) at the tokens of `tiles`, and nowhere else."""
    check_pages(q, k_cache, v_cache)
    if tiles.numel() == 0:
        return
    _, n_heads, width = q.shape
    n_kv_heads, block = k_cache.shape[1:3]
    group = n_heads // n_kv_heads
    config = config or default_config(width=width, dtype=k_cache.dtype, window=window)
    prefill_kernel[(tiles.shape[0], n_kv_heads)](
        q,
        k_cache,
        v_cache,
        block_tables,
        tiles,
        out,
        scale * LOG2_E,
        q.stride(0),
        block_tables.stride(0),
        HEADS=n_heads,
        GROUP=group,
        D=width,
        WIDTH=power_of_2(width),
        BLOCK=block,
        STRIDE_BLOCK=k_cache.stride(0),
        BLOCK_M=config.rows(group),
        BLOCK_N=config.block_n,
        WINDOW=window,
        UPCAST=INTERPRETED,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )


@triton.jit(do_not_specialize=["stride_table"], do_not_specialize_on_alignment=["block_tables", "tiles"])
def prefill_kernel(
    queries: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    block_tables: tl.tensor,
    tiles: tl.tensor,
    out: tl.tensor,
    scale: tl.tensor,
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
    WINDOW: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    tile, kv_head = tiles + tl.program_id(0) * 4, tl.program_id(1)
    row = tl.load(tile)
    if row < 0:
        return
    first_token = tl.load(tile + 1)
    position, n_queries = tl.load(tile + 2).to(tl.int32), tl.load(tile + 3).to(tl.int32)
    packed = tl.arange(0, BLOCK_M)
    query = packed // GROUP
    inside = query < n_queries
    heads = kv_head * GROUP + packed % GROUP
    q = dot_operand(load_queries(queries, first_token + query, heads, inside, stride_query, D, WIDTH), UPCAST)
    keys, values = k_cache + kv_head * BLOCK * D, v_cache + kv_head * BLOCK * D
    table = block_tables + row * stride_table
    query_positions = position + query
    top, total, acc = nothing_seen(BLOCK_M, WIDTH)

    end = position + n_queries
    seen_by_all = (position + 1) // BLOCK_N * BLOCK_N
    low = position * 0
    if WINDOW > 0:
        low = tl.maximum(position + 1 - WINDOW, 0) // BLOCK_N * BLOCK_N
    for first in range(low, seen_by_all, BLOCK_N):
        positions = first + tl.arange(0, BLOCK_N)
        top, total, acc = attend_tile(
            q, top, total, acc, table, keys, values, positions, end, query_positions, scale,
            STRIDE_BLOCK, BLOCK, D, WIDTH, WINDOW, False, UPCAST,
        )  # fmt: skip
    for first in range(seen_by_all, end, BLOCK_N):
        positions = first + tl.arange(0, BLOCK_N)
        top, total, acc = attend_tile(
            q, top, total, acc, table, keys, values, positions, end, query_positions, scale,
            STRIDE_BLOCK, BLOCK, D, WIDTH, WINDOW, True, UPCAST,
        )  # fmt: skip

    d = tl.arange(0, WIDTH)
    cells = (first_token + query) * HEADS + heads
    result = to_out(normalised(total, acc), out.dtype.element_ty, UPCAST)
    tl.store(out + cells[:, None] * D + d[None, :], result, mask=inside[:, None] & (d < D)[None, :])
