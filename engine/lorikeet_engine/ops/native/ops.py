"""`Ops` on a CPU by the native library; what it does not cover goes the torch way.

Tensors become pointers here and nowhere else: every call hands over addresses of tensors that its caller holds, with
the dtype and contiguity that the sources expect.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import AttentionBatch, LoraRun, PackedLinear, SiteShape

LANES = 16  # elements to a vector: widths that are no multiple go the torch way
PANEL = 48  # columns of a packed weight that lie together
MAX_RUN = 16  # tokens of a run from which two matmuls are faster
WORD_BYTES = 4  # of a weight, along the inputs, that lie together
SUFFIX = {torch.bfloat16: "bf16", torch.float32: "f32"}

P, N, F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "linear": (P, P, N, P, P, N, N, N),
    "norm": (P, P, P, P, P, N, N, F),
    "silu_mul": (P, P, N, N),
    "rotary_write": (P, P, N, P, N, P, N, P, P, P, P, P, P, N, N, N, N, N),
    "decode_attention": (P, N, P, P, P, P, N, P, N, N, N, N, N, N, F),
    "lora": (P, N, P, N, P, P, N, N, P, N, N),
}
Kernel = Callable[..., None]


@dataclass(frozen=True, slots=True)
class DecodePages:
    """The decode rows' pages: int64 tables [B, blocks] and contexts [B]."""

    tables: torch.Tensor
    contexts: torch.Tensor
    window: int
    block_size: int


@dataclass(frozen=True, slots=True)
class GroupedRuns:
    """A step's runs: the short ones as int64 [n, 3] (base, first token, tokens), the long ones as they came."""

    runs: Sequence[LoraRun]
    short: torch.Tensor
    long: tuple[LoraRun, ...]


class NativeCpuOps(CpuOps):
    """The serving backend on a CPU with a compiler."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self._kernels = {dtype: _kernels(library, suffix) for dtype, suffix in SUFFIX.items()}
        self._grouped = GroupedRuns((), torch.empty(0, 3, dtype=torch.int64), ())
        self._slices: dict[SiteShape, torch.Tensor | None] = {}

    def pack_linear(self, *, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        out_features, in_features = weight.shape
        if not (_is_native(weight.dtype, out_features) and _is_native(weight.dtype, in_features)):
            return super().pack_linear(weight=weight, bias=bias)
        return PackedLinear(_panels(weight), bias, in_features, out_features)

    def linear(self, *, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        if linear.weight.dim() != 1:  # packed the torch way
            return super().linear(x=x, linear=linear)
        x = _rows(x)
        out = x.new_empty(x.shape[0], linear.out_features)
        self._kernels[x.dtype]["linear"](
            out.data_ptr(),
            x.data_ptr(),
            x.stride(0),
            linear.weight.data_ptr(),
            None if linear.bias is None else linear.bias.data_ptr(),
            x.shape[0],
            linear.in_features,
            linear.out_features,
        )
        return out

    def rms_norm(self, *, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        width = x.shape[-1]
        if not _is_native(x.dtype, width):
            return super().rms_norm(x=x, weight=weight, eps=eps)
        x = x.contiguous()
        out = torch.empty_like(x)
        rows = x.numel() // width
        self._kernels[x.dtype]["norm"](out.data_ptr(), None, x.data_ptr(), None, weight.data_ptr(), rows, width, eps)
        return out

    def add_rms_norm(
        self, *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        width = x.shape[-1]
        if not _is_native(x.dtype, width):
            return super().add_rms_norm(x=x, residual=residual, weight=weight, eps=eps)
        x, residual = x.contiguous(), residual.contiguous()
        out, total = torch.empty_like(x), torch.empty_like(x)
        self._kernels[x.dtype]["norm"](
            out.data_ptr(),
            total.data_ptr(),
            x.data_ptr(),
            residual.data_ptr(),
            weight.data_ptr(),
            x.numel() // width,
            width,
            eps,
        )
        return out, total

    def silu_mul(self, *, gate_up: torch.Tensor) -> torch.Tensor:
        width = gate_up.shape[-1] // 2
        if not _is_native(gate_up.dtype, width):
            return super().silu_mul(gate_up=gate_up)
        gate_up = gate_up.contiguous()
        out = gate_up.new_empty(*gate_up.shape[:-1], width)
        self._kernels[gate_up.dtype]["silu_mul"](out.data_ptr(), gate_up.data_ptr(), out.numel() // width, width)
        return out

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
        n_tokens, n_heads, width = q.shape
        if rotary is None or q.dtype not in SUFFIX:
            return super().rotary_write_kv(q=q, k=k, v=v, rotary=rotary, batch=batch, k_cache=k_cache, v_cache=v_cache)
        q, k, v = (x if x.stride(2) == 1 and x.stride(1) == width else x.contiguous() for x in (q, k, v))
        out = q.new_empty(n_tokens, n_heads, width)
        self._kernels[q.dtype]["rotary_write"](
            out.data_ptr(),
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            v.data_ptr(),
            v.stride(0),
            rotary[0].data_ptr(),
            rotary[1].data_ptr(),
            batch.slot_blocks.data_ptr(),
            batch.slot_offsets.data_ptr(),
            k_cache.data_ptr(),
            v_cache.data_ptr(),
            n_tokens,
            n_heads,
            k.shape[1],
            width,
            k_cache.shape[2],
        )
        return out

    def plan_decode(
        self, *, batch: AttentionBatch, window: int, n_kv_heads: int, block_size: int, dtype: torch.dtype
    ) -> DecodePages:
        del n_kv_heads, dtype
        contexts = torch.tensor(batch.context_lens[: batch.n_decode])
        return DecodePages(batch.block_tables.contiguous(), contexts, window, block_size)

    def attend_decode(
        self, *, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: DecodePages, scale: float
    ) -> torch.Tensor:
        n_rows, n_heads, width = q.shape
        if not _is_native(q.dtype, width):
            raise ValueError(f"heads of {width} {q.dtype}")
        q = q if q.stride(2) == 1 and q.stride(1) == width else q.contiguous()
        out = q.new_empty(n_rows, n_heads, width)
        self._kernels[q.dtype]["decode_attention"](
            q.data_ptr(),
            q.stride(0),
            out.data_ptr(),
            k_cache.data_ptr(),
            v_cache.data_ptr(),
            plan.tables.data_ptr(),
            plan.tables.stride(0),
            plan.contexts.data_ptr(),
            n_rows,
            n_heads,
            k_cache.shape[1],
            width,
            plan.block_size,
            plan.window,
            scale,
        )
        return out

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
        slices = self._slices_of(site)
        if slices is None or x.dtype not in SUFFIX:
            return super().add_lora(out=out, x=x, arena=arena, runs=runs, layer=layer, site=site)
        grouped = self._group(runs)
        if len(grouped.short):
            x = _rows(x)
            self._kernels[x.dtype]["lora"](
                out.data_ptr(),
                out.stride(0),
                x.data_ptr(),
                x.stride(0),
                arena.data_ptr(),
                grouped.short.data_ptr(),
                len(grouped.short),
                layer,
                slices.data_ptr(),
                len(slices),
                site.in_features,
            )
        if grouped.long:
            super().add_lora(out=out, x=x, arena=arena, runs=grouped.long, layer=layer, site=site)
        return None

    def _group(self, runs: Sequence[LoraRun]) -> GroupedRuns:
        """Every layer of a step comes with the same runs, so they are laid out at the first and kept until the next
        step. Held, not only remembered: the identity of a sequence that is gone may be another's."""
        if self._grouped.runs is not runs:
            short = [(run.base, run.first_token, run.n_tokens) for run in runs if run.n_tokens <= MAX_RUN]
            table = torch.tensor(short, dtype=torch.int64).view(-1, 3)
            self._grouped = GroupedRuns(runs, table, tuple(run for run in runs if run.n_tokens > MAX_RUN))
        return self._grouped

    def _slices_of(self, site: SiteShape) -> torch.Tensor | None:
        """The site's slices as the library reads them, None where a width is no multiple of a vector."""
        if site not in self._slices:
            widths = (site.in_features, *(width for _, _, width in site.slices))
            covered = not any(width % LANES for width in widths)
            self._slices[site] = torch.tensor(site.slices, dtype=torch.int64) if covered else None
        return self._slices[site]


def covers(head_width: int) -> bool:
    """Whether attention is covered; everything else falls back by itself, by what it is called with."""
    return head_width % LANES == 0


def _kernels(library: ctypes.CDLL, suffix: str) -> dict[str, Kernel]:
    kernels: dict[str, Kernel] = {}
    for name, signature in SIGNATURES.items():
        function = library[f"{name}_{suffix}"]
        function.argtypes, function.restype = signature, None
        kernels[name] = function
    return kernels


def _is_native(dtype: torch.dtype, width: int) -> bool:
    return width % LANES == 0 and dtype in SUFFIX


def _rows(x: torch.Tensor) -> torch.Tensor:
    """x [T, in] with every row's elements side by side; rows may lie apart."""
    return x if x.stride(1) == 1 else x.contiguous()


def _panels(weight: torch.Tensor) -> torch.Tensor:
    """[out, in] as panels of `PANEL` columns, the last one narrower: [in / step][columns][step] each, flat."""
    out_features, in_features = weight.shape
    step = WORD_BYTES // weight.element_size()
    whole = out_features // PANEL * PANEL
    packed = torch.empty(weight.numel(), dtype=weight.dtype)
    for first, count, width in ((0, whole // PANEL, PANEL), (whole, 1, out_features - whole)):
        if count * width:
            part = weight[first : first + count * width].reshape(count, width, in_features // step, step)
            target = packed[first * in_features : (first + count * width) * in_features]
            target.view(count, in_features // step, width, step).copy_(part.transpose(1, 2))
    return packed
