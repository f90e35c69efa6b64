"""RoPE of a step's queries and keys, and the keys and values into their slots, in one launch.

    rotary_write_kv(q=[T, H, D], k=[T, KV heads, D], v=, rotary=(cos, sin) | None, positions=int64 [T],
                    slot_blocks=int64 [T], slot_offsets=int64 [T], k_cache=, v_cache=) -> rotated q [T, H, D]

q, k and v may be slices of one fused tensor; nothing is read or written beyond their heads. The halves of a head are
rotated against each other (RoFormer, arXiv:2104.09864, in the layout of GPT-NeoX). A slot of -1 is nowhere.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from lorikeet_engine.ops.triton.target import INTERPRETED, dot_operand, to_out

# Heads that one program takes; a token has as many programs as that needs.
HEADS_AT_ONCE: Final = 8
# 16 bytes of half precision for each of its 32 threads.
ELEMENTS_OF_A_WARP: Final = 256


def rotary_write_kv(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rotary: tuple[torch.Tensor, torch.Tensor] | None,
    positions: torch.Tensor,
    slot_blocks: torch.Tensor,
    slot_offsets: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
) -> torch.Tensor:
    """Returns the rotated queries, contiguous; `q` itself where there is no rotary embedding."""
    n_tokens, n_heads, width = q.shape
    n_kv_heads, block = k_cache.shape[1:3]
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.stride()[1:] != (width, 1):
            raise ValueError(f"the heads of {name} must lie side by side, not at strides {x.stride()}")
    if k_cache.stride() != v_cache.stride() or k_cache.stride()[1:] != (block * width, width, 1):
        raise ValueError(f"pages must be [blocks, KV heads, block, D], not at strides {k_cache.stride()}")
    if n_tokens == 0:
        return q
    cos, sin = rotary if rotary is not None else (q, q)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if rotary is not None else q
    query_programs = triton.cdiv(n_heads, HEADS_AT_ONCE) if rotary is not None else 0
    half = triton.next_power_of_2(width // 2)
    rotary_write_kv_kernel[(n_tokens, query_programs + triton.cdiv(n_kv_heads, HEADS_AT_ONCE))](
        q,
        k,
        v,
        cos,
        sin,
        positions,
        slot_blocks,
        slot_offsets,
        k_cache,
        v_cache,
        out,
        q.stride(0),
        k.stride(0),
        v.stride(0),
        QUERY_PROGRAMS=query_programs,
        HEADS=n_heads,
        KV_HEADS=n_kv_heads,
        HALF=width // 2,
        WIDTH=half,
        BLOCK=block,
        STRIDE_BLOCK=k_cache.stride(0),
        AT_ONCE=HEADS_AT_ONCE,
        ROTARY=rotary is not None,
        UPCAST=INTERPRETED,
        num_warps=max(1, min(4, HEADS_AT_ONCE * half // ELEMENTS_OF_A_WARP)),
    )
    return out


@triton.jit
def rotated(left: tl.tensor, right: tl.tensor, cos: tl.tensor, sin: tl.tensor, UPCAST: tl.constexpr) -> tl.tensor:
    """Both halves, in float32 and rounded once."""
    a, b = dot_operand(left, UPCAST).to(tl.float32), dot_operand(right, UPCAST).to(tl.float32)
    return to_out(a * cos - b * sin, left.dtype, UPCAST), to_out(b * cos + a * sin, left.dtype, UPCAST)


@triton.jit
def load_head(source: tl.tensor, mask: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    return tl.load(source, mask=mask, other=0.0), tl.load(source + HALF, mask=mask, other=0.0)


@triton.jit
def store_head(target: tl.tensor, left: tl.tensor, right: tl.tensor, mask: tl.tensor, HALF: tl.constexpr) -> None:
    tl.store(target, left, mask=mask)
    tl.store(target + HALF, right, mask=mask)


@triton.jit(do_not_specialize_on_alignment=["positions", "slot_blocks", "slot_offsets"])
def rotary_write_kv_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    cos_table: tl.tensor,
    sin_table: tl.tensor,
    positions: tl.tensor,
    slot_blocks: tl.tensor,
    slot_offsets: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    out: tl.tensor,
    stride_q: tl.tensor,
    stride_k: tl.tensor,
    stride_v: tl.tensor,
    QUERY_PROGRAMS: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIDE_BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr,
    ROTARY: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """Program (token, p): the p-th lot of query heads, then the lots of KV heads."""
    token, lot = tl.program_id(0).to(tl.int64), tl.program_id(1)
    member, d = tl.arange(0, AT_ONCE), tl.arange(0, WIDTH)
    real = (d < HALF)[None, :]
    if ROTARY:
        angles = tl.load(positions + token) * HALF + d
        cos = tl.load(cos_table + angles, mask=d < HALF, other=0.0)[None, :]
        sin = tl.load(sin_table + angles, mask=d < HALF, other=0.0)[None, :]
    if lot < QUERY_PROGRAMS:
        heads = lot * AT_ONCE + member
        mask = (heads < HEADS)[:, None] & real
        inner = (heads * (2 * HALF))[:, None] + d[None, :]
        if ROTARY:
            source = q + token * stride_q + inner
            left, right = load_head(source, mask, HALF)
            left, right = rotated(left, right, cos, sin, UPCAST)
            store_head(out + token * (HEADS * 2 * HALF) + inner, left, right, mask, HALF)
    else:
        heads = (lot - QUERY_PROGRAMS) * AT_ONCE + member
        block = tl.load(slot_blocks + token)
        if block >= 0:
            mask = (heads < KV_HEADS)[:, None] & real
            inner = (heads * (2 * HALF))[:, None] + d[None, :]
            slot = block * STRIDE_BLOCK + tl.load(slot_offsets + token) * (2 * HALF)
            slots = slot + (heads * (BLOCK * 2 * HALF))[:, None] + d[None, :]
            source = v + token * stride_v + inner
            left, right = load_head(source, mask, HALF)
            store_head(v_cache + slots, left, right, mask, HALF)
            source = k + token * stride_k + inner
            left, right = load_head(source, mask, HALF)
            if ROTARY:
                left, right = rotated(left, right, cos, sin, UPCAST)
            store_head(k_cache + slots, left, right, mask, HALF)
