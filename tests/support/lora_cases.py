"""The one case table of adapters in a batch: which tokens have which rank, and what else their adapters hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lorikeet_adapters.manifest import BIAS, DORA, FLAG_SHIFT, GRAIN
from lorikeet_adapters.modules import MODULES, Linear, ModuleTable
from lorikeet_engine.lora.arena import LoraArena
from lorikeet_engine.ops.interface import LoraBatch, LoraRun, Ops

N_LAYERS = 2
SITES = {"qkv": (0, 1, 2), "o": (3,), "gate_up": (4, 5), "down": (6,)}
GAP = 3  # grains between two extents
ALL_BUT_Q_AND_V = (1, 3, 4, 5, 6)


@dataclass(frozen=True)
class LoraCase:
    """Runs as (tokens, rank), rank None = the base model.

    Attributes:
        skipped: modules that every second adapter, from the first on, does not have.
        flags: what the adapters' blocks have, by turns.
        biased: the linears have a bias of their own, as DoRA must know.
    """

    name: str
    segments: tuple[tuple[int, int | None], ...]
    hidden: int = 48
    skipped: tuple[int, ...] = ()
    strided: bool = False
    flags: tuple[int, ...] = (0,)
    biased: bool = False

    def __str__(self) -> str:
        return self.name


# The segment lists are those on which grouped kernels failed in the field (field report A20).
LORA_CASES = (
    LoraCase("one_token", ((1, 8),)),
    LoraCase("one_token_each", tuple((1, rank) for rank in (1, 2, 4, 8, 16, 64))),
    LoraCase("base_between", ((0, 4), (5, 16))),
    LoraCase("skewed", ((127, 16), (1, 64)), hidden=32),
    LoraCase("ragged", ((3, 1), (64, 2), (1, 64), (17, 4))),
    LoraCase("base_in_the_middle", ((3, 8), (4, None), (2, 16), (5, None))),
    LoraCase("base_only", ((6, None),)),
    LoraCase("rank_not_a_power_of_two", ((4, 3), (4, 33), (1, 7)), hidden=80),
    LoraCase("partial_targets", ((3, 8), (3, 8), (3, 4)), skipped=(1, 4, 6)),
    LoraCase("q_and_v_only", ((3, 8), (1, 4), (1, 8)), skipped=ALL_BUT_Q_AND_V),
    LoraCase("strided_input", ((3, 8), (2, None), (4, 16)), strided=True),
    LoraCase("same_adapter_twice_apart", ((2, 8), (2, None), (2, 8))),
    LoraCase("bias", ((1, 8), (5, 3)), flags=(BIAS,)),
    LoraCase("dora", ((1, 8), (5, 3)), flags=(DORA,)),
    LoraCase("dora_on_biased_linears", ((1, 8), (5, 3)), flags=(DORA,), biased=True),
    LoraCase(
        "all_flags_in_one_batch", ((4, 4), (1, 8), (3, None), (3, 2), (1, 16)), flags=(DORA, BIAS, 0), biased=True
    ),
)

# Every case on the site of three slices, and on the others those that tell slices and widths apart.
PLACES = tuple(
    (case, site)
    for case in LORA_CASES
    for site in SITES
    if site == "qkv" or case.name in ("partial_targets", "all_flags_in_one_batch")
)


def lora_case(name: str) -> LoraCase:
    return next(case for case in LORA_CASES if case.name == name)


@dataclass
class LoraData:
    x: torch.Tensor
    out: torch.Tensor
    runs: tuple[LoraRun, ...]
    arena: LoraArena
    base_bias: torch.Tensor | None


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
        skipped = case.skipped if index % 2 == 0 else ()
        flags = case.flags[index % len(case.flags)]
        extent = random_extent(table, rank, dtype, generator, skipped=skipped, flags=flags)
        arena.write(free, extent)
        bases[rank] = free
        free += extent.numel() // GRAIN + GAP
    shape = arena.site(SITES[site])
    n_out = sum(width for _, _, width in shape.slices)
    n_tokens = sum(length for length, _ in case.segments)
    x = torch.randn(n_tokens, shape.in_features * (2 if case.strided else 1), generator=generator).to(dtype)
    out = torch.randn(n_tokens, n_out, generator=generator).to(dtype)
    base_bias = torch.randn(n_out, generator=generator).to(dtype) if case.biased else None
    segments = [(length, bases[rank] if rank else None) for length, rank in case.segments]
    return LoraData(x[:, :: 2 if case.strided else 1], out, runs_at(arena, segments), arena, base_bias)


def runs_at(arena: LoraArena, segments: Sequence[tuple[int, int | None]]) -> tuple[LoraRun, ...]:
    """Segments of (tokens, base) one after another as runs; base None = the base model."""
    runs, token = [], 0
    for n_tokens, base in segments:
        if base is not None and n_tokens:
            runs.append(LoraRun(base, token, n_tokens, arena.head(base)))
        token += n_tokens
    return tuple(runs)


def random_extent(
    table: ModuleTable,
    rank: int,
    dtype: torch.dtype,
    generator: torch.Generator,
    *,
    skipped: tuple[int, ...] = (),
    flags: int = 0,
) -> torch.Tensor:
    """An adapter of random numbers, laid out as the architecture's section 8 says."""
    head = torch.zeros(table.n_layers, len(MODULES), 2, dtype=torch.int32)
    n_head = -(-head.nbytes // (GRAIN * dtype.itemsize))
    parts, position = [torch.zeros(n_head * GRAIN, dtype=dtype)], n_head
    for layer in range(table.n_layers):
        for index, name in enumerate(MODULES):
            if index in skipped:
                continue
            linear = table.linears[name]
            n_elements = rank * (linear.in_features + linear.out_features)
            head[layer, index] = torch.tensor([position, rank | flags << FLAG_SHIFT])
            block = [(torch.randn(n_elements, generator=generator) * linear.in_features**-0.5).to(dtype)]
            if flags:
                block.append((torch.randn(linear.out_features, generator=generator) * 0.5).view(dtype))
            parts += block
            position += sum(part.numel() for part in block) // GRAIN
    extent = torch.cat(parts)
    extent[: n_head * GRAIN].view(torch.int32)[: head.numel()] = head.flatten()
    return extent


def add_lora(ops: Ops, data: LoraData, site: str, layer: int, out: torch.Tensor) -> torch.Tensor:
    """What `ops` makes of `out`, which it writes to."""
    code = ops.encode_runs(data.runs, len(data.x))
    if len(code) > ops.lora_code_size(len(data.x)):
        raise ValueError(f"{len(code)} integers do not fit in {ops.lora_code_size(len(data.x))}")
    ops.add_lora(
        out=out,
        x=data.x,
        arena=data.arena.storage,
        batch=LoraBatch(data.runs, torch.tensor(code, dtype=torch.int64)),
        layer=layer,
        site=data.arena.site(SITES[site]),
        base_bias=data.base_bias,
    )
    return out
