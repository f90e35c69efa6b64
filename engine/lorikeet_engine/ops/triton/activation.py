"""The gated activation of the Llama family's MLP (SwiGLU, arXiv:2002.05202).

silu_mul(gate_up=[T, gate | up]) -> [T, I]
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from lorikeet_engine.ops.triton.target import INTERPRETED, dot_operand, to_out

COLUMNS: Final = 1024


def silu_mul(*, gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up; silu is rounded to the dtype before the product, as two torch operations would."""
    n_tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(n_tokens, width, dtype=gate_up.dtype, device=gate_up.device)
    if n_tokens:
        columns = min(COLUMNS, triton.next_power_of_2(width))
        silu_mul_kernel[(n_tokens, triton.cdiv(width, columns))](
            gate_up, out, gate_up.stride(0), W=width, COLUMNS=columns, UPCAST=INTERPRETED, num_warps=4
        )
    return out


@triton.jit
def silu_mul_kernel(
    gate_up: tl.tensor,
    out: tl.tensor,
    stride: tl.tensor,
    W: tl.constexpr,
    COLUMNS: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = column < W
    source = gate_up + token * stride + column
    gate = dot_operand(tl.load(source, mask=mask, other=0.0), UPCAST).to(tl.float32)
    up = dot_operand(tl.load(source + W, mask=mask, other=0.0), UPCAST).to(tl.float32)
    # exp of a negative number only: it cannot overflow.
    fading = tl.exp(-tl.abs(gate))
    silu = gate * tl.where(gate >= 0, 1.0, fading) / (1.0 + fading)
    dtype = out.dtype.element_ty
    silu = dot_operand(to_out(silu, dtype, UPCAST), UPCAST).to(tl.float32)
    tl.store(out + token * W + column, to_out(silu * up, dtype, UPCAST), mask=mask)
