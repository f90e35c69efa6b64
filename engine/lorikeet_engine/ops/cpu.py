"""`Ops` on a CPU with torch: oneDNN for the linears, SDPA for attention, small matmuls for adapters.

Works in float32 and bfloat16; sums run in float32 where torch does so at no cost, and norms and rotary always do.
A row's result depends on its companions only through floating-point rounding (how far the gather is padded, how many
rows a matmul has).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from lorikeet_adapters.manifest import BIAS
from lorikeet_engine.ops.extents import Block, block_at
from lorikeet_engine.ops.interface import AttentionBatch, LoraBatch, LoraRun, PackedLinear, Recording, SiteShape

# What decides between adapters' products, measured on an AVX-512 core: a small product's price, the rate of products of
# few rows, and of copying matrices side by side. 8 adapters of ranks 8 to 64 on 8 rows take 57 instead of 101 ms in
# bf16 together, and 51 instead of 44 in float32.
PRODUCT_S = {torch.bfloat16: 28e-6, torch.float32: 6e-6}
FLOPS_S, COPY_BYTES_S = 60e9, 6e9


@dataclass(frozen=True, slots=True)
class DecodeGather:
    """How the decode rows' pages become one padded tensor [B, KV heads, L, D].

    Attributes:
        pages: int64 [B * KV heads * blocks], index into the cache seen as [blocks * KV heads, block, D].
        stale: slots of the padded tensor, seen as [B * KV heads * L, D], that hold no token of the row.
        mask: [B, 1, 1, L], 0 or -inf.
        empty: rows that only pad, with nothing to attend to.
    """

    n_rows: int
    pages: torch.Tensor
    stale: torch.Tensor
    mask: torch.Tensor
    empty: torch.Tensor


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One row of several query tokens: its pages, its length and which keys each query sees."""

    first: int
    end: int
    context: int
    blocks: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class CpuPlan:
    n_decode: int
    decode: DecodeGather | None
    prefill: tuple[PrefillRow, ...]


class CpuOps:
    """The serving backend where there is no GPU."""

    def __init__(self) -> None:
        self._onednn = bool(torch._C._has_mkldnn)

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        out_features, in_features = weight.shape
        if self._onednn:
            # Blocked layout for oneDNN: plain F.linear reaches a third of the memory bandwidth for few rows.
            weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        return PackedLinear(weight, bias, in_features, out_features)

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        weight = linear.weight.to_dense() if self._onednn else linear.weight
        yield from torch.split(weight[first:end], n_rows)

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        if self._onednn:
            out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, linear.weight, linear.bias, "none", [], "")
            return out
        return F.linear(x, linear.weight, linear.bias)

    def gather_rows(self, *, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return table[rows]

    def rms_norm(self, *, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (wide * scale).to(x.dtype) * weight

    def add_rms_norm(
        self, *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return self.rms_norm(x=total, weight=weight, eps=eps), total

    def silu_mul(self, *, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def rotary_write_kv(
        self,
        *,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor] | None,
        batch: AttentionBatch,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
    ) -> torch.Tensor:
        if rotary is not None:
            angles = rotary[0][batch.positions], rotary[1][batch.positions]
            q, k = _rotate(q, *angles), _rotate(k, *angles)
        blocks, offsets = batch.slot_blocks, batch.slot_offsets
        kept = blocks >= 0
        if not bool(kept.all()):
            blocks, offsets, k, v = blocks[kept], offsets[kept], k[kept], v[kept]
        k_cache[blocks, :, offsets] = k
        v_cache[blocks, :, offsets] = v
        return q

    def plan_attention(
        self, *, batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
    ) -> CpuPlan:
        decode = _plan_decode(batch, window, n_kv_heads, block_size, dtype) if batch.n_decode else None
        rows = range(batch.n_decode, batch.n_rows)
        prefill = tuple(_plan_prefill(batch, row, window, block_size, dtype) for row in rows)
        return CpuPlan(batch.n_decode, decode, prefill)

    def attention(
        self, *, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: CpuPlan, scale: float
    ) -> torch.Tensor:
        out = torch.empty_like(q)
        if plan.decode is not None:
            out[: plan.n_decode] = _attend_decode(q[: plan.n_decode], k_cache, v_cache, plan.decode, scale)
        for row in plan.prefill:
            out[row.first : row.end] = _attend_prefill(q[row.first : row.end], k_cache, v_cache, row, scale)
        return out.flatten(1)

    def lora_code_size(self, n_tokens: int) -> int:
        del n_tokens
        return 0

    def encode_runs(self, runs: Sequence[LoraRun], n_tokens: int) -> Sequence[int]:
        del runs, n_tokens
        return ()

    def add_lora(
        self,
        *,
        out: torch.Tensor,
        x: torch.Tensor,
        arena: torch.Tensor,
        batch: LoraBatch,
        layer: int,
        site: SiteShape,
        base_bias: torch.Tensor | None,
    ) -> None:
        for module, column, width in site.slices:
            runs = [run for run in batch.runs if run.head[layer][module].rank]
            blocks = [block_at(arena, run.base, run.head[layer][module], site.in_features, width) for run in runs]
            target = out[:, column : column + width]
            bias = None if base_bias is None else base_bias[column : column + width]
            if _costs_less_together(runs, blocks):
                _add_together(target, x, runs, blocks)
                continue
            for run, block in zip(runs, blocks, strict=True):
                tokens = slice(run.first_token, run.first_token + run.n_tokens)
                _add_alone(target[tokens], x[tokens], block, run.head[layer][module].flags, bias)

    def greedy(self, *, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best, tokens = logits.max(dim=-1)
        return tokens, torch.isfinite(best)

    def run(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        return compute()

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Recording] | None:
        del compute
        return None


def _add_alone(target: torch.Tensor, x: torch.Tensor, block: Block, flags: int, base_bias: torch.Tensor | None) -> None:
    """One run's delta, and what its block's vector does."""
    shrunk = x @ block.a.T
    if block.vector is None:
        target.addmm_(shrunk, block.bt)
        return
    # In float32 and rounded once, as the plain delta is.
    added = block.vector
    if flags != BIAS:
        added = block.vector * (target if base_bias is None else target - base_bias.float())
    target.copy_(target + (added + shrunk.float() @ block.bt.float()))


def _costs_less_together(runs: Sequence[LoraRun], blocks: Sequence[Block]) -> bool:
    """Whether one pair of products over all runs' ranks, most of it masked, is done sooner than a pair for each run.

    Together every token meets every rank, and the matrices are copied side by side; alone each product has its price,
    however small it is.
    """
    if len(runs) < 2 or any(block.vector is not None for block in blocks):
        return False
    elements = sum(block.a.numel() + block.bt.numel() for block in blocks)
    n_tokens = runs[-1].first_token + runs[-1].n_tokens - runs[0].first_token
    own = sum(run.n_tokens * (block.a.numel() + block.bt.numel()) for run, block in zip(runs, blocks, strict=True))
    wasted_s = 2 * (n_tokens * elements - own) / FLOPS_S + elements * blocks[0].a.itemsize / COPY_BYTES_S
    return wasted_s < 2 * (len(runs) - 1) * PRODUCT_S[blocks[0].a.dtype]


def _add_together(target: torch.Tensor, x: torch.Tensor, runs: Sequence[LoraRun], blocks: Sequence[Block]) -> None:
    """All runs' deltas from one pair of products; a rank that is not a token's own counts nothing for it."""
    first = runs[0].first_token
    tokens = slice(first, runs[-1].first_token + runs[-1].n_tokens)
    shrunk = x[tokens] @ torch.cat([block.a for block in blocks]).T
    kept = torch.zeros_like(shrunk)
    rank = 0
    for run, block in zip(runs, blocks, strict=True):
        rows, own = (
            slice(run.first_token - first, run.first_token - first + run.n_tokens),
            slice(rank, rank + len(block.a)),
        )
        kept[rows, own] = shrunk[rows, own]
        rank = own.stop
    target[tokens].addmm_(kept, torch.cat([block.bt for block in blocks]))


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)  # [T, H, D/2]
    c, s = cos[:, None], sin[:, None]
    out = torch.empty_like(x)
    half = left.shape[-1]
    out[..., :half] = left * c - right * s
    out[..., half:] = right * c + left * s
    return out


def _plan_decode(
    batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
) -> DecodeGather:
    n_rows = batch.n_decode
    lengths = batch.contexts[:n_rows]
    n_blocks = max(1, -(-int(lengths.max()) // block_size))
    tables = batch.block_tables[:n_rows, :n_blocks]
    heads = torch.arange(n_kv_heads)
    pages = (tables[:, None, :] * n_kv_heads + heads[:, None]).flatten()
    positions = torch.arange(n_blocks * block_size)
    unseen = positions >= lengths[:, None]  # [B, L]
    # A slot that holds no token is zeroed after the gather: a masked NaN is still NaN after 0 * NaN.
    stale = unseen[:, None].expand(-1, n_kv_heads, -1).flatten().nonzero().flatten()
    if window:
        unseen = unseen | (positions < lengths[:, None] - window)
    mask = torch.zeros(unseen.shape, dtype=dtype).masked_fill_(unseen, float("-inf"))
    return DecodeGather(n_rows, pages, stale, mask[:, None, None], (lengths == 0).nonzero().flatten())


def _plan_prefill(batch: AttentionBatch, row: int, window: int, block_size: int, dtype: torch.dtype) -> PrefillRow:
    first, end, context = batch.query_starts[row], batch.query_starts[row + 1], batch.context_lens[row]
    blocks = batch.block_tables[row, : -(-context // block_size)]
    queries = torch.arange(context - (end - first), context)[:, None]
    keys = torch.arange(context)
    unseen = keys > queries
    if window:
        unseen |= keys <= queries - window
    mask = torch.zeros(unseen.shape, dtype=dtype).masked_fill_(unseen, float("-inf"))
    return PrefillRow(first, end, context, blocks, mask)


def _attend_decode(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: DecodeGather, scale: float
) -> torch.Tensor:
    n_heads, width, n_kv_heads = q.shape[1], q.shape[2], k_cache.shape[1]
    keys, values = (
        cache.view(-1, cache.shape[2] * width)
        .index_select(0, plan.pages)
        .view(-1, width)
        .index_fill_(0, plan.stale, 0.0)
        .view(plan.n_rows, n_kv_heads, -1, width)
        for cache in (k_cache, v_cache)
    )
    # The G query heads of a KV head are query rows of one attention: each key is read once, not G times.
    packed = q.view(plan.n_rows, n_kv_heads, n_heads // n_kv_heads, width)
    out = F.scaled_dot_product_attention(packed, keys, values, attn_mask=plan.mask, scale=scale)
    return out.reshape(plan.n_rows, n_heads, width).index_fill_(0, plan.empty, 0.0)


def _attend_prefill(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, row: PrefillRow, scale: float
) -> torch.Tensor:
    n_tokens, n_heads, width = q.shape
    n_kv_heads = k_cache.shape[1]
    group = n_heads // n_kv_heads
    keys, values = (
        cache.index_select(0, row.blocks).transpose(0, 1).reshape(n_kv_heads, -1, width)[:, None, : row.context]
        for cache in (k_cache, v_cache)
    )
    grouped = q.view(n_tokens, n_kv_heads, group, width).permute(1, 2, 0, 3)  # [KV heads, G, n, D]
    shape = (n_kv_heads, group, row.context, width)
    out = F.scaled_dot_product_attention(
        grouped, keys.expand(shape), values.expand(shape), attn_mask=row.mask, scale=scale
    )
    return out.permute(2, 0, 1, 3).reshape(n_tokens, n_heads, width)
