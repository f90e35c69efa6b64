"""The backends that ops are tested on, and how far each may be from the float64 oracle.

A backend joins by a line in `BACKENDS`; the cases are in `lora_cases` and `attention_cases`. Everything that a case
does not write (unused pages, unused slots) is NaN, so that a result can only be right without them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.cuda import CudaOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.native.library import load_library
from lorikeet_engine.ops.native.ops import NativeCpuOps
from lorikeet_engine.ops.triton.target import INTERPRETED

BACKENDS: dict[str, Callable[[], Ops]] = {"cpu": CpuOps}
if NATIVE_LIBRARY := load_library():
    BACKENDS["native"] = partial(NativeCpuOps, NATIVE_LIBRARY)
if INTERPRETED:
    BACKENDS["interpreter"] = partial(CudaOps, device="cpu", max_tokens=512, max_rank=64)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# Norm of the error over norm of the result. In bf16 a rounding is 2^-9, in fp16 2^-12.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 2e-3}
# The delta alone: small beside what it is added to, a wrong one hides in the sum.
DELTA_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def dtypes_of(backend: str) -> tuple[str, ...]:
    """The CPU's backends serve no fp16."""
    return ("fp32", "bf16", "fp16") if backend == "interpreter" else ("fp32", "bf16")


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over norm of what is expected; infinite when anything is not finite."""
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    scale = expected.double().norm().clamp_min(torch.finfo(torch.float64).tiny)
    return float((found.double() - expected.double()).norm() / scale)
