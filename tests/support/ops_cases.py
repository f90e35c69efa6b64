"""The backends that ops are tested on.

A backend joins by a line in `BACKENDS`; the cases are in `lora_cases` and `attention_cases`. Everything that a case
does not write (unused pages, unused slots) is NaN, so that a result can only be right without them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.cuda import CudaOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.native.library import load_library
from lorikeet_engine.ops.native.ops import NativeCpuOps
from lorikeet_engine.ops.triton.target import INTERPRETED
from tests.support.two_workers import one_at_a_time

with one_at_a_time():
    NATIVE_LIBRARY = load_library()
BACKENDS: dict[str, Callable[[], Ops]] = {"cpu": CpuOps, "native": partial(NativeCpuOps, NATIVE_LIBRARY)}
if INTERPRETED:
    BACKENDS["interpreter"] = partial(CudaOps, device="cpu", max_tokens=512, max_rank=64)


def dtypes_of(backend: str) -> tuple[str, ...]:
    """The CPU's backends serve no fp16."""
    return ("fp32", "bf16", "fp16") if backend == "interpreter" else ("fp32", "bf16")
