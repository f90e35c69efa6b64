"""The one case table of the ops, and how far a backend may be from the float64 oracle.

A backend joins by a line in `BACKENDS`. Everything that a case does not write (unused pages, unused slots) is NaN, so
that a result can only be right without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.modules import MODULES, Linear, ModuleTable
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import LoraRun, Ops
from lorikeet_engine.ops.native.library import load_library
from lorikeet_engine.ops.native.ops import NativeCpuOps

BACKENDS: dict[str, Callable[[], Ops]] = {"cpu": CpuOps}
if NATIVE_LIBRARY := load_library():
    BACKENDS["native"] = partial(NativeCpuOps, NATIVE_LIBRARY)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

# Norm of the error over norm of the result. In bf16 a rounding is 2^-9.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3}
# The delta alone: small beside what it is added to, a wrong one hides in the sum.
DELTA_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


@dataclass(frozen=True)
class LoraCase:
    """Runs as (tokens, rank), rank None = the base model; `skipped` modules are absent from every second adapter."""

    name: str
    segments: tuple[tuple[int, int | None], ...]
    hidden: int = 48
    skipped: tuple[int, ...] = ()
    strided: bool = False

    def __str__(self) -> str:
        return self.name


# The segment lists are those on which grouped kernels failed in the field (field report A20).
LORA_CASES = (
    LoraCase("one_token", ((1, 8),)),
    LoraCase("one_token_each", tuple((1, rank) for rank in (1, 2, 4, 8, 16, 64))),
    LoraCase("base_between", ((0, 4), (5, 16))),
    LoraCase("skewed", ((127, 16), (1, 64))),
    LoraCase("ragged", ((3, 1), (64, 2), (1, 64), (17, 4))),
    LoraCase("base_in_the_middle", ((3, 8), (4, None), (2, 16), (5, None))),
    LoraCase("base_only", ((6, None),)),
    LoraCase("rank_not_a_power_of_two", ((4, 3), (4, 33)), hidden=80),
    LoraCase("partial_targets", ((3, 8), (3, 8), (3, 4)), skipped=(1, 4, 6)),
    LoraCase("strided_input", ((3, 8), (2, None), (4, 16)), strided=True),
    LoraCase("same_adapter_twice_apart", ((2, 8), (2, None), (2, 8))),
)

N_LAYERS = 2
SITES = {"qkv": (0, 1, 2), "o": (3,), "gate_up": (4, 5), "down": (6,)}


@dataclass
class LoraData:
    x: torch.Tensor
    out: torch.Tensor
    runs: tuple[LoraRun, ...]
    arena: LoraArena


def lora_table(hidden: int) -> ModuleTable:
    narrow, wide = 16, 2 * hidden
    attention = [(hidden, hidden), (hidden, narrow), (hidden, narrow), (hidden, hidden)]
    widths = [*attention, (hidden, wide), (hidden, wide), (wide, hidden)]
    linears = {name: Linear(*width) for name, width in zip(MODULES, widths, strict=True)}
    return ModuleTable(base_model="case", n_layers=N_LAYERS, linears=linears)


def lora_data(case: LoraCase, site: str, dtype: torch.dtype) -> LoraData:
    """An arena with one extent per rank, NaN between the extents, and tokens cut into the case's segments."""
    generator = torch.Generator().manual_seed(11)
    table = lora_table(case.hidden)
    arena = LoraArena(table=table, pool_bytes=1 << 21, dtype=dtype, device="cpu")
    arena.storage.fill_(float("nan"))
    bases: dict[int, int] = {}
    free = 5
    ranks = dict.fromkeys(rank for _, rank in case.segments if rank)
    for index, rank in enumerate(ranks):
        extent = random_extent(table, rank, dtype, generator, skipped=case.skipped if index % 2 == 0 else ())
        arena.write(free, extent)
        bases[rank] = free
        free += extent.numel() // GRAIN + 3
    runs, token = [], 0
    for n_tokens, adapter_rank in case.segments:
        if adapter_rank and n_tokens:
            base = bases[adapter_rank]
            runs.append(LoraRun(base, token, n_tokens, arena.head(base)))
        token += n_tokens
    shape = arena.site(SITES[site])
    n_out = sum(width for _, _, width in shape.slices)
    x = torch.randn(token, shape.in_features * (2 if case.strided else 1), generator=generator).to(dtype)
    out = torch.randn(token, n_out, generator=generator).to(dtype)
    return LoraData(x[:, :: 2 if case.strided else 1], out, tuple(runs), arena)


def random_extent(
    table: ModuleTable, rank: int, dtype: torch.dtype, generator: torch.Generator, *, skipped: tuple[int, ...] = ()
) -> torch.Tensor:
    """An adapter of random numbers, laid out as the architecture's section 8 says."""
    head = torch.zeros(table.n_layers, len(MODULES), 2, dtype=torch.int32)
    n_head = -(-head.nbytes // (GRAIN * dtype.itemsize))
    blocks, position = [], n_head
    for layer in range(table.n_layers):
        for index, name in enumerate(MODULES):
            if index in skipped:
                continue
            linear = table.linears[name]
            n_elements = rank * (linear.in_features + linear.out_features)
            head[layer, index] = torch.tensor([position, rank])
            blocks.append(torch.randn(n_elements, generator=generator) * linear.in_features**-0.5)
            position += n_elements // GRAIN
    extent = torch.cat([torch.zeros(n_head * GRAIN), *blocks]).to(dtype)
    extent[: n_head * GRAIN].view(torch.int32)[: head.numel()] = head.flatten()
    return extent


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over norm of what is expected; infinite when anything is not finite."""
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    scale = expected.double().norm().clamp_min(torch.finfo(torch.float64).tiny)
    return float((found.double() - expected.double()).norm() / scale)
