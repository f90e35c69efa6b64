"""The kernels of attention and of what lies around it, as compiled for GPUs that are not there.

A missed proof of alignment turns 16-byte asynchronous copies into 2-byte loads, and a tile too large spills registers;
both are silent, and both show in the assembly (engine-design 2.3).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import pytest
import torch

from lorikeet_engine.ops.triton import (
    activation,
    attention_decode,
    attention_prefill,
    block_copy,
    kv_write,
    norm,
    sampling,
)
from tests.support.aot import INSTALLED, SHARED_LIMIT, TARGETS, TRITONS, Build, Compiled, compile_all
from tests.support.launches import launches_of

pytestmark = pytest.mark.slow

BF16, FP32 = torch.bfloat16, torch.float32
# Registers of a thread that leave room for four programs of four warps (decode), and for one of eight (prefill).
DECODE_REGISTERS, PREFILL_REGISTERS, OTHER_REGISTERS = 168, 255, 80
# AMD's count includes the accumulation registers of its matrix unit, 512 in all.
AMD_REGISTERS = 256
# An A100 has no wgmma, so that tiles as large as a Hopper likes cost it a few spilled values a thread, under Triton 3.6
# in every shape. Smaller tiles are for its own measured table to choose.
A100_PREFILL_STACK = 80


@dataclass(frozen=True)
class Shape:
    """A model as attention's kernels see it."""

    name: str
    width: int
    group: int
    kv_heads: int
    dtype: torch.dtype = BF16
    block: int = 16
    window: int = 0
    stride: int = 0  # of a block, if it is not packed

    def heads(self, n_tokens: int) -> torch.Tensor:
        return meta(n_tokens, self.group * self.kv_heads, self.width, dtype=self.dtype)

    def pages(self) -> torch.Tensor:
        pages = meta(8, self.kv_heads, self.block, self.width, dtype=self.dtype)
        if not self.stride:
            return pages
        return meta(8 * self.stride, dtype=self.dtype).as_strided(pages.shape, (self.stride, *pages.stride()[1:]))


LLAMA = Shape("llama", width=128, group=4, kv_heads=8)
SMOLLM = Shape("smollm", width=64, group=3, kv_heads=3)
SHAPES = (
    LLAMA,
    Shape("llama_fp32", width=128, group=4, kv_heads=8, dtype=FP32),
    Shape("mistral", width=128, group=4, kv_heads=8, window=4096),
    SMOLLM,
    Shape("width_80", width=80, group=7, kv_heads=1, block=32),
    Shape("width_256", width=256, group=16, kv_heads=1),
    Shape("width_256_fp32", width=256, group=8, kv_heads=1, dtype=FP32),
    Shape("far_blocks", width=128, group=8, kv_heads=1, block=64, stride=(1 << 31) + 16),
)


def meta(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def decode(shape: Shape) -> None:
    q, pages = shape.heads(4), shape.pages()
    attention_decode.attend_decode(
        q=q,
        k_cache=pages,
        v_cache=pages,
        contexts=meta(4),
        block_tables=meta(4, 512),
        scale=0.1,
        out=q,
        window=shape.window,
    )


def prefill(shape: Shape) -> None:
    q, pages = shape.heads(64), shape.pages()
    attention_prefill.attend_prefill(
        q=q,
        k_cache=pages,
        v_cache=pages,
        block_tables=meta(4, 512),
        tiles=meta(9, 4),
        scale=0.1,
        out=q,
        window=shape.window,
    )


def write(shape: Shape, *, rotary: bool) -> None:
    n_heads, pages = shape.group * shape.kv_heads, shape.pages()
    heads = meta(7, n_heads + 2 * shape.kv_heads, shape.width, dtype=shape.dtype)
    q, k, v = torch.split(heads, [n_heads, shape.kv_heads, shape.kv_heads], dim=1)
    table = meta(4096, shape.width // 2, dtype=FP32)
    kv_write.rotary_write_kv(
        q=q,
        k=k,
        v=v,
        rotary=(table, table) if rotary else None,
        positions=meta(7),
        slot_blocks=meta(7),
        slot_offsets=meta(7),
        k_cache=pages,
        v_cache=pages,
    )


def x(*shape: int) -> torch.Tensor:
    return meta(*shape, dtype=BF16)


def add_norm(width: int) -> None:
    norm.add_rms_norm(x=x(7, width), residual=x(7, width), weight=x(width), eps=1e-5)


DENSE: Mapping[str, tuple[ModuleType, Callable[[], object]]] = {
    "llama": (kv_write, lambda: write(LLAMA, rotary=True)),
    "no_rope": (kv_write, lambda: write(LLAMA, rotary=False)),
    "smollm": (kv_write, lambda: write(SMOLLM, rotary=True)),
    "of_a_head": (norm, lambda: norm.rms_norm(x=x(7, 32, 128), weight=x(128), eps=1e-5)),
    "of_576": (norm, lambda: add_norm(576)),
    "of_4096": (norm, lambda: add_norm(4096)),
    "of_8192": (norm, lambda: add_norm(8192)),
    "gate": (activation, lambda: activation.silu_mul(gate_up=x(7, 2 * 14336))),
    "embedding": (sampling, lambda: sampling.gather_rows(table=x(128, 4096), rows=meta(7))),
    "token": (sampling, lambda: sampling.greedy(logits=meta(7, 128256, dtype=FP32))),
    "swap_out": (block_copy, lambda: block_copy.gather_blocks(pointers=meta(64), blocks=meta(3), slab=x(3, 64, 16384))),
    "swap_in": (block_copy, lambda: block_copy.scatter_blocks(pointers=meta(64), blocks=meta(3), slab=x(3, 64, 16384))),
}


def builds() -> list[Build]:
    calls: list[tuple[str, ModuleType, Callable[[], object]]] = [
        *((shape.name, attention_decode, partial(decode, shape)) for shape in SHAPES),
        *((shape.name, attention_prefill, partial(prefill, shape)) for shape in SHAPES),
        *((name, module, call) for name, (module, call) in DENSE.items()),
    ]
    launches = [(name, launch) for name, module, call in calls for launch in launches_of(module, call)]
    return [launch.build(name, target) for target in TARGETS for name, launch in launches]


BUILDS = {str(build): build for build in builds()}
ATTENTION = [name for name, build in BUILDS.items() if "attention_" in build.kernel and "merge" not in build.kernel]


# What a triton beside the installed one compiles, to save minutes: every kernel, and attention at two shapes.
ELSEWHERE = ("llama", "far_blocks", "of_a_head", "of_4096", "gate", "embedding", "token", "swap_out", "swap_in")


def built_by(triton: str) -> dict[str, Build]:
    return {name: build for name, build in BUILDS.items() if triton == INSTALLED or name.split("-")[0] in ELSEWHERE}


def with_each_triton(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(triton, name) for triton in TRITONS for name in names if name in built_by(triton)]


@functools.cache
def compiled_by(triton: str) -> dict[str, Compiled]:
    return compile_all(list(built_by(triton).values()), TRITONS[triton])


@pytest.mark.parametrize(("triton", "name"), with_each_triton(list(BUILDS)))
def test_a_kernel_fits_its_chip_without_spilling(triton: str, name: str) -> None:
    found, build = compiled_by(triton)[name], BUILDS[name]
    assert found.stack <= (A100_PREFILL_STACK if build.target == "sm_80" and "prefill" in build.kernel else 0)
    assert found.shared <= SHARED_LIMIT[build.target]
    limit = OTHER_REGISTERS
    if name in ATTENTION:
        limit = DECODE_REGISTERS if "decode" in build.kernel else PREFILL_REGISTERS
        limit = AMD_REGISTERS if build.target.startswith("gfx") else limit
    assert found.registers <= limit


@pytest.mark.parametrize(("triton", "name"), with_each_triton(ATTENTION))
def test_keys_and_values_come_in_wide_copies_ahead_of_their_use(triton: str, name: str) -> None:
    found, build = compiled_by(triton)[name], BUILDS[name]
    assert found.wide_loads > 0
    if not build.target.startswith("gfx"):
        assert found.async_copies > 0
    if "fp32" not in build.signature["k_cache"]:
        assert found.matrix_products > 0


@pytest.mark.parametrize(
    ("triton", "name"), with_each_triton([name for name in BUILDS if "sm_" in name and "greedy_merge" not in name])
)
def test_rows_move_16_bytes_at_a_time(triton: str, name: str) -> None:
    """But for the merge of a row's few finds, which is no traffic."""
    found = compiled_by(triton)[name]
    assert found.wide_loads + len(re.findall(r"ld\.global\.v2\.b64", found.text)) > 0


@pytest.mark.parametrize("triton", TRITONS)
def test_no_address_of_a_page_is_counted_in_32_bits(triton: str) -> None:
    """The block's number is multiplied by its stride as 64 bits: the stride alone, 2^31 + 16, does not fit in 32."""
    for kernel in ("decode_split", "prefill"):
        text = compiled_by(triton)[f"far_blocks-{kernel}-sm_90"].text
        assert str((1 << 31) + 16) in text or str(2 * ((1 << 31) + 16)) in text
