"""How far a result may be from the float64 oracle, and how far it is.

Knows no backend, so that the check on a GPU machine can use it, too.
"""

from __future__ import annotations

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# Norm of the error over norm of the result. In bf16 a rounding is 2^-9, in fp16 2^-12.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 2e-3}
# The delta alone: small beside what it is added to, a wrong one hides in the sum.
DELTA_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over norm of what is expected; infinite when anything is not finite."""
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    scale = expected.double().norm().clamp_min(torch.finfo(torch.float64).tiny)
    return float((found.double() - expected.double()).norm() / scale)
