"""The LoRA kernels compiled for GPUs, with the configurations that serve: no stack, few registers, wide loads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch

from lorikeet_engine.ops.lora_planes import MAX_LOW_TOKENS, tile_height
from lorikeet_engine.ops.triton.lora_tiles import default_config
from tests.support.aot import SHARED_LIMIT, TARGETS, TRITONS, Build, Compiled, compile_all

pytestmark = pytest.mark.slow

KERNELS = "lorikeet_engine.ops.triton.lora"
IN_FEATURES, MAX_RANK, N_SLICES = 4096, 64, 3
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
STEPS = {"low": MAX_LOW_TOKENS, "high": MAX_LOW_TOKENS + 1}
# Per thread. A processor of NVIDIA's has 65536: room for four programs of 128 threads and more, and in large steps for
# two of 256. In float32 the products are multiply-adds, whose operands are held in registers, too.
REGISTER_LIMIT = {
    "shrink-low-bf16": 96,
    "shrink-low-fp32": 96,
    "expand-low-bf16": 104,
    "expand-low-fp32": 104,
    "shrink-high-bf16": 128,
    "shrink-high-fp32": 168,
    "expand-high-bf16": 128,
    "expand-high-fp32": 128,
}


def builds() -> Iterator[Build]:
    for target in TARGETS:
        for step, n_tokens in STEPS.items():
            for dtype in DTYPES:
                yield shrink(target, step, n_tokens, dtype)
                yield expand(target, step, n_tokens, dtype, biased=dtype == "bf16")


def shrink(target: str, step: str, n_tokens: int, dtype: str) -> Build:
    config = default_config(n_tokens=n_tokens, in_features=IN_FEATURES, dtype=DTYPES[dtype])
    return Build(
        name=f"shrink-{step}-{dtype}",
        kernel=f"{KERNELS}:shrink_kernel",
        target=target,
        signature={
            **dict.fromkeys(("x", "arena"), f"*{dtype}:16"),
            "code": "*i64:16",
            "planes": "*fp32:16",
            "layer": "i32",
            **dict.fromkeys(("x_stride", "in_grains"), "i32:16"),
            **dict.fromkeys(("module_0", "module_1", "module_2"), "i32"),
        },
        constants={
            "N_SLICES": N_SLICES,
            "MAX_RANK": MAX_RANK,
            "SPLIT": config.split,
            "BM": tile_height(n_tokens),
            "BN": config.shrink_ranks,
            "BK": config.shrink_inputs,
            "UPCAST": False,
        },
        num_warps=config.shrink_warps,
        num_stages=config.shrink_stages,
    )


def expand(target: str, step: str, n_tokens: int, dtype: str, *, biased: bool) -> Build:
    """Widths in grains are not said to be divisible by 16: they need not be."""
    config = default_config(n_tokens=n_tokens, in_features=IN_FEATURES, dtype=DTYPES[dtype])
    return Build(
        name=f"expand-{step}-{dtype}",
        kernel=f"{KERNELS}:expand_kernel",
        target=target,
        signature={
            **dict.fromkeys(("y", "arena"), f"*{dtype}:16"),
            "code": "*i64:16",
            "planes": "*fp32:16",
            **({"base_bias": f"*{dtype}:16"} if biased else {}),
            "layer": "i32",
            "y_stride": "i32:16",
            **dict.fromkeys(("in_grains", "width_0", "width_1", "width_2"), "i32"),
            **dict.fromkeys(("module_0", "module_1", "module_2"), "i32"),
        },
        constants={
            **({} if biased else {"base_bias": None}),
            "N_SLICES": N_SLICES,
            "MAX_RANK": MAX_RANK,
            "SPLIT": config.split,
            "ROW_BN": config.row_columns,
            "BM": tile_height(n_tokens),
            "BN": config.tile_columns,
            "BK": config.expand_ranks,
            "UPCAST": False,
        },
        num_warps=config.expand_warps,
        num_stages=config.expand_stages,
    )


BUILDS = tuple(builds())


@pytest.fixture(scope="module", params=list(TRITONS))
def compiled(request: pytest.FixtureRequest) -> dict[str, Compiled]:
    return compile_all(BUILDS, TRITONS[request.param])


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_it_fits_the_chip(compiled: dict[str, Compiled], build: Build) -> None:
    kernel = compiled[str(build)]
    assert kernel.stack == 0
    assert kernel.registers <= REGISTER_LIMIT[build.name]
    assert kernel.shared <= SHARED_LIMIT[build.target]


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_it_moves_16_bytes_at_a_time(compiled: dict[str, Compiled], build: Build) -> None:
    """And in the background where there are several steps: AMD's chip has no such copies from triton yet."""
    kernel = compiled[str(build)]
    assert kernel.wide_loads > 0
    assert kernel.matrix_products > 0 or "fp32" in build.name
    assert (kernel.async_copies > 0) == build.target.startswith("sm_")


@pytest.mark.parametrize("build", [b for b in BUILDS if b.target == "sm_90"], ids=str)
def test_rows_meet_their_strides_in_64_bits(compiled: dict[str, Compiled], build: Build) -> None:
    """Field bug: a token's row times the stride, in 32 bits, wraps in a long batch."""
    assert len(re.findall(r"\b(?:mul|mad)\.lo\.s64", compiled[str(build)].text)) > 0
