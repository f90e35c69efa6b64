"""The port between the model and a device: what a backend must be able to do, in eight verbs.

A backend knows tensors only. It does not know requests, layers' names or where adapters come from; what it needs of a
step it gets as `AttentionBatch` and `LoraRun`, both rebuilt for every step.

Axes in comments: T tokens of the step, B rows, H heads, G query heads per KV head, D head width, L context length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

# Where each linear of a layer lies in the four fused outputs; numbers are the head table's module order.
QKV, OUTPUT, GATE_UP, DOWN = (0, 1, 2), (3,), (4, 5), (6,)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight [out, in] in whatever form the backend multiplies fastest, and its bias [out]."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    in_features: int
    out_features: int

    @property
    def nbytes(self) -> int:
        bias = self.bias.nbytes if self.bias is not None else 0
        return self.in_features * self.out_features * self.weight.element_size() + bias


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """The rows of one step as attention sees them.

    Attributes:
        n_decode: how many leading rows have exactly one query token.
        query_starts: first query token of each row, and T at the end.
        context_lens: per row, tokens to attend to, this step's included.
        block_tables: int64 [B, most blocks], padded with block 0, which is zero and belongs to nobody.
        slot_blocks: int64 [T], the block that token t's key and value go to.
        slot_offsets: int64 [T], and where in that block.
    """

    n_decode: int
    query_starts: tuple[int, ...]
    context_lens: tuple[int, ...]
    block_tables: torch.Tensor
    slot_blocks: torch.Tensor
    slot_offsets: torch.Tensor

    @property
    def n_rows(self) -> int:
        return len(self.context_lens)


@dataclass(frozen=True, slots=True)
class SiteShape:
    """One fused linear as adapters see it: (module number, first output column, out_features) of each slice."""

    in_features: int
    slices: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LoraRun:
    """Consecutive tokens of one adapter.

    `head[layer][module]` is (grains from `base`, rank), rank 0 = the adapter leaves that module alone. It is the
    host's copy of the extent's own head.
    """

    base: int
    first_token: int
    n_tokens: int
    head: Sequence[Sequence[tuple[int, int]]]


class Ops(Protocol):
    """What a device does for the model. Tensors go by keyword; outputs named `out` are written in place."""

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        """Bring a weight into the form `linear` wants; the caller drops the original."""
        ...

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        """x [T, in] @ weight.T + bias."""
        ...

    def rms_norm(self, *, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Root-mean-square norm over the last axis, computed in float32."""
        ...

    def add_rms_norm(
        self, *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm(x + residual), x + residual)."""
        ...

    def silu_mul(self, *, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of [T, gate | up]."""
        ...

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
        """Rotate q [T, H, D] and k by `rotary` = (cos, sin), each float32 [T, D/2], and store k, v in their slots.

        Returns the rotated q. `rotary` None = this layer has no rotary embedding. Nothing but the slots is written.
        """
        ...

    def plan_attention(
        self, *, batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
    ) -> Any:
        """What `attention` needs of the batch and is equal in all layers; `window` 0 = full attention."""
        ...

    def attention(
        self, *, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: Any, scale: float
    ) -> torch.Tensor:
        """Causal attention of q [T, H, D] over the pages [blocks, KV heads, block, D]; returns [T, H * D].

        Slots outside a row's context may hold anything, NaN included, and never reach a result.
        """
        ...

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
        """out[run] += (x[run] @ A.T) @ Bt for every run and slice; tokens outside the runs are not touched."""
        ...
