"""The port between the model and a device: what a backend must be able to do.

A backend knows tensors only. It does not know requests, layers' names or where adapters come from; what it needs of a
step it gets as `AttentionBatch` and `LoraBatch`, both filled anew for every step.

A decode step may be recorded once and replayed: then the batches' tensors are the same ones every time, with new
numbers in them, and everything else that a batch says (how many rows, how wide the tables) is as it was.

Axes in comments: T tokens of the step, B rows, H heads, G query heads per KV head, D head width, L context length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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
    """The rows of one step as attention sees them. All tensors are int64 and on the backend's device.

    Attributes:
        n_decode: how many leading rows have exactly one query token.
        query_starts: first query token of each row, and T at the end.
        context_lens: per row, tokens to attend to, this step's included; of a recorded step, those it was recorded
            with, so what is replayed reads `contexts`.
        contexts: [B], the same as a tensor; 0 = a decode row that pads a recorded step: its output is zero.
        block_tables: [B, most blocks], padded with block 0, which is zero and belongs to nobody.
        positions: [T], each token's place in its sequence.
        slot_blocks: [T], the block that token t's key and value go to; -1 = nowhere.
        slot_offsets: [T], and where in that block.
    """

    n_decode: int
    query_starts: tuple[int, ...]
    context_lens: tuple[int, ...]
    contexts: torch.Tensor
    block_tables: torch.Tensor
    positions: torch.Tensor
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


class HeadEntry(NamedTuple):
    """Where one module of an extent lies: grains from the extent's base, rank (0 = absent), and flags."""

    rel: int
    rank: int
    flags: int


@dataclass(frozen=True, slots=True)
class LoraRun:
    """Consecutive tokens of one adapter. `head[layer][module]` is the host's copy of the extent's own head."""

    base: int
    first_token: int
    n_tokens: int
    head: Sequence[Sequence[HeadEntry]]


@dataclass(frozen=True, slots=True)
class LoraBatch:
    """The adapters of a step: the runs, and what the backend's `encode_runs` made of them, int64 on its device."""

    runs: tuple[LoraRun, ...]
    code: torch.Tensor


class Recording(Protocol):
    """A step that can be computed again over the tensors that it was recorded with."""

    def replay(self) -> None: ...


class Ops(Protocol):
    """What a device does for the model. Tensors go by keyword; outputs named `out` are written in place."""

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        """Bring a weight into the form `linear` wants; the caller drops the original."""
        ...

    def unpack_linear(self, *, linear: PackedLinear, first: int, end: int, n_rows: int) -> Iterator[torch.Tensor]:
        """Rows first to end of the weight [out, in] that `linear` multiplies by, exactly, and on its device.

        In order, at most `n_rows` at a time; a backend that can only bring back the whole does so once. Touches nothing
        but the weight, so another thread may call it while a step is computed.
        """
        ...

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        """x [T, in] @ weight.T + bias."""
        ...

    def gather_rows(self, *, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """table[rows]: [N, width] and int64 [S] to [S, width]."""
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
        """Rotate q [T, H, D] and k by their positions' angles and store k, v in their slots.

        `rotary` = (cos, sin), each float32 [positions, D/2]; None = this layer has no rotary embedding. Returns the
        rotated q. Nothing but the slots is written.
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

    def lora_code_size(self, n_tokens: int) -> int:
        """How many integers `encode_runs` writes at most for a step of `n_tokens`."""
        ...

    def encode_runs(self, runs: Sequence[LoraRun], n_tokens: int) -> Sequence[int]:
        """The runs of a step as the backend's kernels read them; ends up in `LoraBatch.code`."""
        ...

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
        """out[run] += (x[run] @ A.T) @ Bt for every run and slice; tokens outside the runs are not touched.

        A block with `BIAS` adds its vector as well; one with `DORA` adds vector * (out - base_bias), out as it came
        and `base_bias` the linear's own, None = 0. Vectors are float32 [out_features] behind Bt.
        """
        ...

    def greedy(self, *, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of [S, vocab]: the first of the largest, int64 [S], and whether it is finite, bool [S]."""
        ...

    def run(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What `compute` returns; the backend may gather its ops and carry them out together. The result may be
        overwritten by the next `run` or replay."""
        ...

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Recording] | None:
        """Compute once and return the result and what computes it again in place; None = this backend cannot."""
        ...
