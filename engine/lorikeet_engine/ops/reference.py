"""The oracle: every operation in float64, one row, one head, one adapter at a time.

Slow on purpose and written to be read; nothing serves with it. A result is cast to the dtype of its input only at the
end, so that a comparison sees the other backend's rounding and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine.ops.interface import AttentionBatch, LoraRun, PackedLinear, SiteShape


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    batch: AttentionBatch
    window: int
    block_size: int


class ReferenceOps:
    """`Ops` in float64. `exact=True` leaves results in float64 instead of casting them back."""

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = exact

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        return PackedLinear(weight, bias, weight.shape[1], weight.shape[0])

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        out = x.double() @ linear.weight.double().T
        return self._as(out if linear.bias is None else out + linear.bias.double(), x)

    def rms_norm(self, *, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = x.double()
        return self._as(wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double(), x)

    def add_rms_norm(
        self, *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = self._as(x.double() + residual.double(), x)
        return self.rms_norm(x=total, weight=weight, eps=eps), total

    def silu_mul(self, *, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.double().chunk(2, dim=-1)
        return self._as(gate * torch.sigmoid(gate) * up, gate_up)

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
        q_out, k_out = (q, k) if rotary is None else (self._rotate(q, *rotary), self._rotate(k, *rotary))
        for token, (block, offset) in enumerate(
            zip(batch.slot_blocks.tolist(), batch.slot_offsets.tolist(), strict=True)
        ):
            k_cache[block, :, offset] = k_out[token].to(k_cache.dtype)
            v_cache[block, :, offset] = v[token]
        return q_out

    def plan_attention(
        self, *, batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
    ) -> ReferencePlan:
        del n_kv_heads, dtype
        return ReferencePlan(batch, window, block_size)

    def attention(
        self, *, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: ReferencePlan, scale: float
    ) -> torch.Tensor:
        batch, group = plan.batch, q.shape[1] // k_cache.shape[1]
        out = torch.zeros_like(q, dtype=torch.float64)
        for row in range(batch.n_rows):
            first, end, context = batch.query_starts[row], batch.query_starts[row + 1], batch.context_lens[row]
            keys, values = (self._gather(cache, plan, row) for cache in (k_cache, v_cache))
            for token in range(first, end):
                position = context - (end - token)
                start = max(0, position + 1 - plan.window) if plan.window else 0
                for head in range(q.shape[1]):
                    k = keys[head // group, start : position + 1]
                    weights = torch.softmax(k @ q[token, head].double() * scale, dim=0)
                    out[token, head] = weights @ values[head // group, start : position + 1]
        return self._as(out.flatten(1), q)

    def add_lora(
        self,
        *,
        out: torch.Tensor,
        x: torch.Tensor,
        arena: torch.Tensor,
        runs: Sequence[LoraRun],
        layer: int,
        site: SiteShape,
    ) -> None:
        for run in runs:
            tokens = slice(run.first_token, run.first_token + run.n_tokens)
            for module, column, width in site.slices:
                rel, rank = run.head[layer][module]
                if rank == 0:
                    continue
                start = GRAIN * (run.base + rel)
                middle = start + rank * site.in_features
                a = arena[start:middle].view(rank, site.in_features).double()
                bt = arena[middle : middle + rank * width].view(rank, width).double()
                total = out[tokens, column : column + width].double() + (x[tokens].double() @ a.T) @ bt
                out[tokens, column : column + width] = total.to(out.dtype)

    def _gather(self, cache: torch.Tensor, plan: ReferencePlan, row: int) -> torch.Tensor:
        """The row's own tokens out of its pages, float64 [KV heads, L, D]."""
        slots = []
        for position in range(plan.batch.context_lens[row]):
            block = int(plan.batch.block_tables[row, position // plan.block_size])
            slots.append(cache[block, :, position % plan.block_size].double())
        return torch.stack(slots, dim=1)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        left, right = x.double().chunk(2, dim=-1)
        c, s = cos.double()[:, None], sin.double()[:, None]
        return self._as(torch.cat((left * c - right * s, right * c + left * s), dim=-1), x)

    def _as(self, out: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return out if self._exact else out.to(like.dtype)
