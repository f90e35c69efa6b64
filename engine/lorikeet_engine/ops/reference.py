"""The oracle: every operation in float64, one row, one head, one adapter at a time.

Slow on purpose and written to be read; nothing serves with it. A result is cast to the dtype of its input only at the
end, so that a comparison sees the other backend's rounding and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from lorikeet_adapters.manifest import BIAS, DORA
from lorikeet_engine.ops.extents import block_at
from lorikeet_engine.ops.interface import AttentionBatch, LoraBatch, LoraRun, PackedLinear, Recording, SiteShape


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

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        yield from torch.split(linear.weight[first:end], n_rows)

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        out = x.double() @ linear.weight.double().T
        return self._as(out if linear.bias is None else out + linear.bias.double(), x)

    def gather_rows(self, *, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return table[rows]

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
        q_out, k_out = q, k
        if rotary is not None:
            angles = rotary[0][batch.positions], rotary[1][batch.positions]
            q_out, k_out = self._rotate(q, *angles), self._rotate(k, *angles)
        for token, (block, offset) in enumerate(
            zip(batch.slot_blocks.tolist(), batch.slot_offsets.tolist(), strict=True)
        ):
            if block >= 0:
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
        for row, context in enumerate(batch.contexts.tolist()):
            if context == 0:
                continue
            first, end = batch.query_starts[row], batch.query_starts[row + 1]
            keys, values = (self._gather(cache, plan, row) for cache in (k_cache, v_cache))
            for token in range(first, end):
                position = context - (end - token)
                start = max(0, position + 1 - plan.window) if plan.window else 0
                for head in range(q.shape[1]):
                    k = keys[head // group, start : position + 1]
                    weights = torch.softmax(k @ q[token, head].double() * scale, dim=0)
                    out[token, head] = weights @ values[head // group, start : position + 1]
        return self._as(out.flatten(1), q)

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
        for run in batch.runs:
            tokens = slice(run.first_token, run.first_token + run.n_tokens)
            for module, column, width in site.slices:
                entry = run.head[layer][module]
                if entry.rank == 0:
                    continue
                columns = slice(column, column + width)
                block = block_at(arena, run.base, entry, site.in_features, width)
                base = out[tokens, columns].double()
                total = base + (x[tokens].double() @ block.a.double().T) @ block.bt.double()
                if block.vector is not None and entry.flags == BIAS:
                    total += block.vector.double()
                if block.vector is not None and entry.flags == DORA:
                    own = base if base_bias is None else base - base_bias[columns].double()
                    total += block.vector.double() * own
                out[tokens, columns] = total.to(out.dtype)

    def greedy(self, *, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = [max(range(len(row)), key=lambda i: (row[i], -i)) for row in logits.tolist()]
        tokens = torch.tensor(best, dtype=torch.int64)
        return tokens, torch.isfinite(logits[torch.arange(len(best)), tokens])

    def run(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        return compute()

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Recording] | None:
        del compute
        return None

    def _gather(self, cache: torch.Tensor, plan: ReferencePlan, row: int) -> torch.Tensor:
        """The row's own tokens out of its pages, float64 [KV heads, L, D]."""
        slots = []
        for position in range(int(plan.batch.contexts[row])):
            block = int(plan.batch.block_tables[row, position // plan.block_size])
            slots.append(cache[block, :, position % plan.block_size].double())
        return torch.stack(slots, dim=1)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        left, right = x.double().chunk(2, dim=-1)
        c, s = cos.double()[:, None], sin.double()[:, None]
        return self._as(torch.cat((left * c - right * s, right * c + left * s), dim=-1), x)

    def _as(self, out: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return out if self._exact else out.to(like.dtype)
