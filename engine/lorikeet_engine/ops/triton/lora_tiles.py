"""The host's side of the LoRA kernels: runs cut into tiles, sizes, and the launch of the pair for one linear.

    code   int64: single rows, tiles, 0, 0 | the single rows | the tiles
           each of them base (grains), first row, number of rows, 0

A step of few tokens has tiles of 16 rows, as low as a matrix product goes, and a large one tiles of 64. Segments of
one or two rows are listed as single rows in front, which `expand` takes without a matrix product. How the kernels
are launched follows from the number of tokens alone, never from the runs: so a recorded step stays right with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine.ops.interface import LoraRun, SiteShape
from lorikeet_engine.ops.lora_planes import HIGH, LOW, MAX_SLICES, MAX_SPLIT, rank_stride, tile_height
from lorikeet_engine.ops.triton.lora import HEADER, TILE, expand_kernel, shrink_kernel
from lorikeet_engine.ops.triton.target import INTERPRETED

MAX_SINGLE_ROWS = 2  # a segment of more is a tile
HEADER_SIZE, TILE_SIZE = int(HEADER.value), int(TILE.value)


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """How the pair is launched for one linear.

    Attributes:
        split: into how many parts shrink's sum over the inputs is cut; fixed, so that a sum is always the same.
        shrink_ranks, shrink_inputs: a step of shrink's product, in ranks and in inputs.
        row_columns: columns that expand takes of a single row at once.
        tile_columns: and of a tile.
        expand_ranks: a step of expand's sum.
        shrink_programs, expand_programs: programs per processor, which share what there is to do; the defaults are as
            many as a processor's registers hold at once, so that none waits for another to end.
    """

    split: int
    shrink_ranks: int
    shrink_inputs: int
    shrink_warps: int
    shrink_stages: int
    shrink_programs: int
    row_columns: int
    tile_columns: int
    expand_ranks: int
    expand_warps: int
    expand_stages: int
    expand_programs: int


def default_config(*, n_tokens: int, in_features: int, dtype: torch.dtype) -> LoraConfig:
    """A start for tuning: shapes that compile without spills and keep many bytes in flight."""
    low, narrow = tile_height(n_tokens) == LOW, dtype.itemsize == 2
    return LoraConfig(
        split=_split(in_features, low),
        shrink_ranks=16 if low else 32,
        shrink_inputs=(128 if low else 64) // (1 if narrow else 2),
        shrink_warps=4,
        shrink_stages=3,
        shrink_programs=8 if low else 4,
        row_columns=512 if narrow else 256,
        tile_columns=128 if narrow else 64,
        expand_ranks=16,
        expand_warps=4 if low else 8,
        expand_stages=3,
        expand_programs=5 if low else 2,
    )


def code_size(n_tokens: int) -> int:
    """How many integers `encode` returns at most: every token may be a run of its own."""
    return HEADER_SIZE + n_tokens * TILE_SIZE


def encode(runs: Sequence[LoraRun], n_tokens: int) -> list[int]:
    """The runs as the kernels read them."""
    height = tile_height(n_tokens)
    singles: list[int] = []
    tiles: list[int] = []
    for run in runs:
        end = run.first_token + run.n_tokens
        for first in range(run.first_token, end, height):
            n_rows = min(height, end - first)
            if n_rows > MAX_SINGLE_ROWS:
                tiles += (run.base, first, n_rows, 0)
            else:
                for row in range(first, end):
                    singles += (run.base, row, 1, 0)
    return [len(singles) // TILE_SIZE, len(tiles) // TILE_SIZE, 0, 0, *singles, *tiles]


def add_lora(
    *,
    out: torch.Tensor,
    x: torch.Tensor,
    arena: torch.Tensor,
    code: torch.Tensor,
    planes: torch.Tensor,
    layer: int,
    site: SiteShape,
    base_bias: torch.Tensor | None,
    max_rank: int,
    processors: int,
    config: LoraConfig | None = None,
) -> None:
    """`Ops.add_lora` by the two kernels; `planes` is scratch whose contents do not matter, `code` as `encode` made it.

    No adapter in the arena may have a rank above `max_rank`.
    """
    n_tokens = x.shape[0]
    config = config or default_config(n_tokens=n_tokens, in_features=site.in_features, dtype=arena.dtype)
    stride = rank_stride(max_rank)
    _check(out, planes, site, n_tokens * len(site.slices) * config.split * stride)
    x = x if x.stride(1) == 1 else x.contiguous()
    rest = (0,) * (MAX_SLICES - len(site.slices))
    modules = tuple(module for module, _, _ in site.slices) + rest
    constants = {
        "N_SLICES": len(site.slices),
        "MAX_RANK": stride,
        "SPLIT": config.split,
        "BM": tile_height(n_tokens),
        "UPCAST": INTERPRETED,
    }
    in_grains = site.in_features // GRAIN
    n_sums = n_tokens * len(site.slices) * config.split
    shrink_kernel[(min(config.shrink_programs * processors, n_sums),)](
        *(x, arena, code, planes, layer, x.stride(0), in_grains),
        *modules,
        **constants,
        BN=config.shrink_ranks,
        BK=config.shrink_inputs,
        num_warps=config.shrink_warps,
        num_stages=config.shrink_stages,
    )
    column_tiles = sum(-(-width // config.tile_columns) for _, _, width in site.slices)
    expand_kernel[(min(config.expand_programs * processors, n_tokens * column_tiles),)](
        *(out, arena, code, planes, base_bias, layer, out.stride(0), in_grains),
        *(width // GRAIN for _, _, width in site.slices),
        *rest,
        *modules,
        **constants,
        ROW_BN=config.row_columns,
        BN=config.tile_columns,
        BK=config.expand_ranks,
        num_warps=config.expand_warps,
        num_stages=config.expand_stages,
    )


def _check(out: torch.Tensor, planes: torch.Tensor, site: SiteShape, n_planes: int) -> None:
    if out.stride(1) != 1:
        raise ValueError(f"an output with a stride of {out.stride(1)} between columns cannot be added to")
    if planes.numel() < n_planes:
        raise ValueError(f"planes of {planes.numel()} numbers are too small for {n_planes}")
    column = 0
    for _, first, width in site.slices:
        if first != column or width % GRAIN:
            raise ValueError(f"slices {site.slices} do not follow one another in whole grains of {GRAIN}")
        column += width


def _split(in_features: int, low: bool) -> int:
    """A power of two, so that there are few variants to compile; low tiles need more programs to fill a device."""
    part, most = (512, MAX_SPLIT[LOW]) if low else (2048, MAX_SPLIT[HIGH])
    split = 1
    while split < most and in_features > part * split:
        split *= 2
    return split
