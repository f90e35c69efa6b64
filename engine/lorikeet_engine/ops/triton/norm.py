"""Root-mean-square norm (arXiv:1910.07467), alone and behind the addition of the residual.

    rms_norm(x=[..., W], weight=[W], eps=) -> like x, contiguous
    add_rms_norm(x=[T, W], residual=[T, W], weight=[W], eps=) -> (norm, x + residual)

The sum of squares is float32; the scaled value is rounded to the tensors' dtype before the weight, as in
transformers' implementation of the Llama family, so that results agree with the CPU backends.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from lorikeet_engine.ops.triton.target import INTERPRETED, dot_operand, to_out

# Elements that one program takes at least: short rows (a head's norm) share a program.
LEAST_TILE: Final = 1024


def rms_norm(*, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x [T, W] or [T, heads, W] with gaps between the tokens, as a slice of heads has them."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    inner = x.shape[1] if x.dim() == 3 else 1
    if x.dim() not in (2, 3) or x.stride(-1) != 1 or (x.dim() == 3 and x.stride(1) != x.shape[2]):
        raise ValueError(f"a norm needs rows that lie side by side, not shape {tuple(x.shape)}, strides {x.stride()}")
    _launch(x, None, weight, out, None, inner, eps)
    return out


def add_rms_norm(
    *, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(norm(x + residual), x + residual); the sum is rounded before it is normed."""
    for name, rows in (("x", x), ("residual", residual)):
        if rows.dim() != 2 or not rows.is_contiguous():
            raise ValueError(f"{name} must be contiguous [T, W], not {tuple(rows.shape)}, strides {rows.stride()}")
    out, total = torch.empty_like(x), torch.empty_like(x)
    _launch(x, residual, weight, out, total, 1, eps)
    return out, total


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    out: torch.Tensor,
    total: torch.Tensor | None,
    inner: int,
    eps: float,
) -> None:
    width = x.shape[-1]
    n_rows = x.numel() // width
    if n_rows == 0:
        return
    padded = triton.next_power_of_2(width)
    rows = max(1, LEAST_TILE // padded)
    rms_norm_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        x if residual is None else residual,
        weight,
        out,
        out if total is None else total,
        x.stride(0),
        n_rows,
        eps,
        INNER=inner,
        W=width,
        WIDTH=padded,
        ROWS=rows,
        ADD=residual is not None,
        UPCAST=INTERPRETED,
        num_warps=min(16, max(4, padded // 1024)),
    )


@triton.jit(do_not_specialize=["n_rows"])
def rms_norm_kernel(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    total: tl.tensor,
    stride_token: tl.tensor,
    n_rows: tl.tensor,
    eps: tl.tensor,
    INNER: tl.constexpr,
    W: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    ADD: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.arange(0, WIDTH)
    mask = (row < n_rows)[:, None] & (d < W)[None, :]
    source = (row // INNER * stride_token + row % INNER * W)[:, None] + d[None, :]
    target = (row * W)[:, None] + d[None, :]
    dtype = out.dtype.element_ty
    wide = dot_operand(tl.load(x + source, mask=mask, other=0.0), UPCAST).to(tl.float32)
    if ADD:
        wide += dot_operand(tl.load(residual + source, mask=mask, other=0.0), UPCAST).to(tl.float32)
        rounded = to_out(wide, dtype, UPCAST)
        tl.store(total + target, rounded, mask=mask)
        wide = dot_operand(rounded, UPCAST).to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 1) / W + eps)
    normed = dot_operand(to_out(wide * scale[:, None], dtype, UPCAST), UPCAST).to(tl.float32)
    gain = dot_operand(tl.load(weight + d, mask=d < W, other=0.0), UPCAST).to(tl.float32)
    tl.store(out + target, to_out(normed * gain[None, :], dtype, UPCAST), mask=mask)
