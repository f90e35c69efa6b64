"""What a kernel is built for: the compiler, or Triton's interpreter on CPU tensors.

The interpreter (`TRITON_INTERPRET=1` before triton is first imported) multiplies bfloat16 bit patterns in `tl.dot`
(triton-lang/triton#11584) and truncates float32 to bfloat16. Kernels take the constexpr `UPCAST`, which launchers set
to `INTERPRETED`, and pass operands of dots and results through the two helpers here; compiled, `dot_operand` leaves no
instruction behind and `to_out` only the conversion.
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl

INTERPRETED: Final = bool(triton.knobs.runtime.interpret)


@triton.jit
def dot_operand(x: tl.tensor, UPCAST: tl.constexpr) -> tl.tensor:
    """An operand of `tl.dot` in a type whose product is right."""
    if UPCAST and x.dtype == tl.bfloat16:
        return (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    elif UPCAST:
        return x.to(tl.float32)
    else:
        return x


@triton.jit
def to_out(x: tl.tensor, dtype: tl.constexpr, UPCAST: tl.constexpr) -> tl.tensor:
    """Float32 `x` in the type of what is stored, rounded to nearest even."""
    if UPCAST and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        rounded = tl.where(x == x, rounded, 0x7FC0)
        return rounded.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)
