"""Kernels that add many adapters' deltas to one linear's output: `shrink` makes x @ A.T, `expand` adds that @ Bt.

Both are persistent: they take their work from the tiles in `code` (see `lora_tiles`), which lie on the device, as do
the extents' heads; so a recorded launch serves any adapters. The grouping by adapter is Punica's SGMV (arXiv
2310.18547, section 4), true ranks in one batch are S-LoRA's MBGMM (arXiv 2311.03285, section 5.3).

Shrink splits its sum over the inputs in `SPLIT` parts. Every part is stored in a plane of its own and expand sums the
planes in order: no atomic, no zeroing, and equal steps give equal bits. A plane is written and read under the same
masks, so that what else it holds (NaN too) reaches nothing.

    planes  float32 [token, slice, SPLIT, MAX_RANK]

Widths come in grains of 16 elements and are multiplied here, which is how the compiler knows that accesses are
aligned; a width in elements makes every masked access 2 bytes wide. Row indices are int64 before they meet a stride.
What does not change from one piece of work to the next stays inside the persistent loops (`disable_licm`): hoisted, it
costs a quarter of the registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lorikeet_adapters import manifest
from lorikeet_adapters.modules import MODULES
from lorikeet_engine.ops.triton.target import dot_operand, to_out

GRAIN = tl.constexpr(manifest.GRAIN)
N_MODULES = tl.constexpr(len(MODULES))
RANK_MASK, FLAG_SHIFT = tl.constexpr(manifest.MAX_RANK), tl.constexpr(manifest.FLAG_SHIFT)
DORA = tl.constexpr(manifest.DORA)
# Integers in front of the tiles, and of one tile.
HEADER, TILE = tl.constexpr(4), tl.constexpr(4)


@triton.jit
def _tile(code: tl.tensor, index: tl.tensor) -> tl.tensor:
    """Base (grains), first row and number of rows of one tile."""
    words = code + HEADER + index * TILE
    return tl.load(words), tl.load(words + 1), tl.load(words + 2).to(tl.int32)


@triton.jit
def _module(arena: tl.tensor, base: tl.tensor, layer: tl.tensor, module: tl.tensor) -> tl.tensor:
    """The block's first element, its rank and its flags, read from the extent's own head."""
    entry = (arena + base * GRAIN).to(tl.pointer_type(tl.int32)) + (layer * N_MODULES + module) * 2
    rel, word = tl.load(entry), tl.load(entry + 1)
    return arena + (base + rel) * GRAIN, word & RANK_MASK, word >> FLAG_SHIFT


@triton.jit(do_not_specialize=["layer"], do_not_specialize_on_alignment=["code"])
def shrink_kernel(
    x: tl.tensor,
    arena: tl.tensor,
    code: tl.tensor,
    planes: tl.tensor,
    layer: tl.tensor,
    x_stride: tl.tensor,
    in_grains: tl.tensor,
    module_0: tl.tensor,
    module_1: tl.tensor,
    module_2: tl.tensor,
    N_SLICES: tl.constexpr,
    MAX_RANK: tl.constexpr,
    SPLIT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """Program = (tile, slice, split), in that order; it walks over the block's true rank in steps of BN.

    The steps are a loop and not programs: which ranks there are is only known on the device, and a grid for the
    largest would mostly be programs that find nothing.
    """
    width = in_grains * GRAIN
    part = (width + BK * SPLIT - 1) // (BK * SPLIT) * BK
    n_items = (tl.load(code) + tl.load(code + 1)).to(tl.int32) * (N_SLICES * SPLIT)
    for item in tl.range(tl.program_id(0), n_items, tl.num_programs(0), num_stages=1, disable_licm=True):
        split = item % SPLIT
        index = item // SPLIT % N_SLICES
        base, first_row, n_rows = _tile(code, item // (SPLIT * N_SLICES))
        module = tl.where(index == 0, module_0, tl.where(index == 1, module_1, module_2))
        block, rank, _flags = _module(arena, base, layer, module)
        rows = tl.arange(0, BM)
        row_mask = rows < n_rows
        x_rows = x + first_row * x_stride + rows * x_stride
        plane = planes + ((first_row * N_SLICES + index) * SPLIT + split) * MAX_RANK
        plane += rows * (N_SLICES * SPLIT * MAX_RANK)
        start = split * part
        end = tl.minimum(start + part, width)
        for first_rank in range(0, rank, BN):
            ranks = first_rank + tl.arange(0, BN)
            rank_mask = ranks < rank
            a_rows = block + ranks * width
            total = tl.full([BM, BN], 0.0, tl.float32)
            for k in range(start, end, BK):
                ks = k + tl.arange(0, BK)
                k_mask = ks < end
                left = tl.load(x_rows[:, None] + ks[None, :], mask=row_mask[:, None] & k_mask[None, :], other=0.0)
                right = tl.load(a_rows[None, :] + ks[:, None], mask=rank_mask[None, :] & k_mask[:, None], other=0.0)
                total = tl.dot(dot_operand(left, UPCAST), dot_operand(right, UPCAST), total, input_precision="ieee")
            tl.store(plane[:, None] + ranks[None, :], total, mask=row_mask[:, None] & rank_mask[None, :])


@triton.jit
def _vector_term(
    before: tl.tensor,
    flags: tl.tensor,
    vector: tl.tensor,
    base_bias: tl.tensor,
    first: tl.tensor,
    offsets: tl.tensor,
    mask: tl.tensor,
) -> tl.tensor:
    """What a flagged block adds besides its delta: its vector, with DoRA times what the base weight alone gave.

    Without a flag nothing is loaded. A branch around it would hold the sums in registers in two layouts.
    """
    flagged = mask & (flags != 0)
    scale = tl.load(vector + offsets, mask=flagged, other=0.0)
    own = before
    if base_bias is not None:
        own = own - tl.load(base_bias + first + offsets, mask=flagged, other=0.0).to(tl.float32)
    return scale * tl.where(flags == DORA, own, 1.0)


@triton.jit
def _plane_sum(plane: tl.tensor, mask: tl.tensor, SPLIT: tl.constexpr, MAX_RANK: tl.constexpr) -> tl.tensor:
    """Sum of the planes, always in the same order."""
    total = tl.load(plane, mask=mask, other=0.0)
    for split in tl.static_range(1, SPLIT):
        total += tl.load(plane + split * MAX_RANK, mask=mask, other=0.0)
    return total


@triton.jit
def _expand_row(
    target: tl.tensor,
    plane: tl.tensor,
    weights: tl.tensor,
    vector: tl.tensor,
    offsets: tl.tensor,
    mask: tl.tensor,
    base_bias: tl.tensor,
    first: tl.tensor,
    rank: tl.tensor,
    flags: tl.tensor,
    width: tl.tensor,
    SPLIT: tl.constexpr,
    MAX_RANK: tl.constexpr,
    BK: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """One row by multiply-adds: a matrix product of 16 rows would hold registers for 15 that are not there."""
    before = tl.load(target + offsets, mask=mask, other=0.0)
    total = tl.full(before.shape, 0.0, tl.float32)
    for k in tl.range(0, rank, BK, num_stages=1):
        ks = k + tl.arange(0, BK)
        k_mask = ks < rank
        w = tl.load(weights + ks[:, None] * width + offsets[None, :], mask=k_mask[:, None] & mask[None, :], other=0.0)
        v = to_out(_plane_sum(plane + ks, k_mask, SPLIT, MAX_RANK), w.dtype, UPCAST)
        total += tl.sum(v.to(tl.float32)[:, None] * w.to(tl.float32), 0)
    before = before.to(tl.float32)
    total += before + _vector_term(before, flags, vector, base_bias, first, offsets, mask)
    tl.store(target + offsets, to_out(total, target.dtype.element_ty, UPCAST), mask=mask)


@triton.jit
def _expand_tile(
    target: tl.tensor,
    plane: tl.tensor,
    weights: tl.tensor,
    vector: tl.tensor,
    offsets: tl.tensor,
    row_mask: tl.tensor,
    mask: tl.tensor,
    base_bias: tl.tensor,
    first: tl.tensor,
    rank: tl.tensor,
    flags: tl.tensor,
    width: tl.tensor,
    SPLIT: tl.constexpr,
    MAX_RANK: tl.constexpr,
    BK: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """Several rows of one adapter by matrix products."""
    target += offsets[None, :]
    both = row_mask[:, None] & mask[None, :]
    before = tl.load(target, mask=both, other=0.0)
    total = tl.full(before.shape, 0.0, tl.float32)
    for k in range(0, rank, BK):
        ks = k + tl.arange(0, BK)
        k_mask = ks < rank
        w = tl.load(weights + ks[:, None] * width + offsets[None, :], mask=k_mask[:, None] & mask[None, :], other=0.0)
        v = _plane_sum(plane[:, None] + ks[None, :], row_mask[:, None] & k_mask[None, :], SPLIT, MAX_RANK)
        v = to_out(v, w.dtype, UPCAST)
        total = tl.dot(dot_operand(v, UPCAST), dot_operand(w, UPCAST), total, input_precision="ieee")
    before = before.to(tl.float32)
    total += before + _vector_term(before, flags, vector, base_bias, first, offsets[None, :], mask[None, :])
    tl.store(target, to_out(total, target.dtype.element_ty, UPCAST), mask=both)


@triton.jit
def _column_tiles(width_0: tl.tensor, width_1: tl.tensor, width_2: tl.tensor, BN: tl.constexpr) -> tl.tensor:
    """Column tiles up to the end of each slice; none of them straddles two slices."""
    end_0 = (width_0 * GRAIN + BN - 1) // BN
    end_1 = end_0 + (width_1 * GRAIN + BN - 1) // BN
    return end_0, end_1, end_1 + (width_2 * GRAIN + BN - 1) // BN


@triton.jit
def _place(
    tile: tl.tensor,
    widths: tl.tensor,
    modules: tl.tensor,
    ends: tl.tensor,
    arena: tl.tensor,
    base: tl.tensor,
    layer: tl.tensor,
    BN: tl.constexpr,
) -> tl.tensor:
    """Of a column tile over all slices: its slice, that slice's width and first output column, the tile's columns
    within it; and the adapter's block for the slice with its rank and flags."""
    second, third = tile >= ends[0], tile >= ends[1]
    width = tl.where(third, widths[2], tl.where(second, widths[1], widths[0])) * GRAIN
    first = tl.where(third, widths[0] + widths[1], tl.where(second, widths[0], 0)) * GRAIN
    start = (tile - tl.where(third, ends[1], tl.where(second, ends[0], 0))) * BN
    module = tl.where(third, modules[2], tl.where(second, modules[1], modules[0]))
    index = second.to(tl.int32) + third.to(tl.int32)
    block, rank, flags = _module(arena, base, layer, module)
    return index, width, first, start + tl.arange(0, BN), block, rank, flags


@triton.jit(do_not_specialize=["layer"], do_not_specialize_on_alignment=["code"])
def expand_kernel(
    y: tl.tensor,
    arena: tl.tensor,
    code: tl.tensor,
    planes: tl.tensor,
    base_bias: tl.tensor,
    layer: tl.tensor,
    y_stride: tl.tensor,
    in_grains: tl.tensor,
    width_0: tl.tensor,
    width_1: tl.tensor,
    width_2: tl.tensor,
    module_0: tl.tensor,
    module_1: tl.tensor,
    module_2: tl.tensor,
    N_SLICES: tl.constexpr,
    MAX_RANK: tl.constexpr,
    SPLIT: tl.constexpr,
    ROW_BN: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    """Program = (tile, column tile over all slices): first the tiles of one row, then the others."""
    n_single, n_tiles = tl.load(code).to(tl.int32), tl.load(code + 1).to(tl.int32)
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    widths, modules = (width_0, width_1, width_2), (module_0, module_1, module_2)
    ends = _column_tiles(width_0, width_1, width_2, ROW_BN)
    n_items = n_single * ends[2]
    for item in tl.range(program, n_items, n_programs, num_stages=1, disable_licm=True):
        base, row, _one = _tile(code, item // ends[2])
        index, width, first, columns, block, rank, flags = _place(
            item % ends[2], widths, modules, ends, arena, base, layer, ROW_BN
        )
        if rank > 0:
            weights = block + rank * (in_grains * GRAIN)
            vector = (weights + rank * width).to(tl.pointer_type(tl.float32))
            target = y + row * y_stride + first
            plane = planes + (row * N_SLICES + index) * (SPLIT * MAX_RANK)
            single = (target, plane, weights, vector, columns, columns < width)
            _expand_row(*single, base_bias, first, rank, flags, width, SPLIT, MAX_RANK, BK, UPCAST)
    ends = _column_tiles(width_0, width_1, width_2, BN)
    begin = (program + n_programs - n_items % n_programs) % n_programs  # who had an item less comes first
    for item in tl.range(begin, n_tiles * ends[2], n_programs, num_stages=1, disable_licm=True):
        base, first_row, n_rows = _tile(code, n_single + item // ends[2])
        index, width, first, columns, block, rank, flags = _place(
            item % ends[2], widths, modules, ends, arena, base, layer, BN
        )
        if rank > 0:
            weights = block + rank * (in_grains * GRAIN)
            vector = (weights + rank * width).to(tl.pointer_type(tl.float32))
            rows = tl.arange(0, BM)
            target = y + first_row * y_stride + first + rows[:, None] * y_stride
            plane = planes + (first_row * N_SLICES + index) * (SPLIT * MAX_RANK)
            plane += rows * (N_SLICES * SPLIT * MAX_RANK)
            tile = (target, plane, weights, vector, columns, rows < n_rows, columns < width)
            _expand_tile(*tile, base_bias, first, rank, flags, width, SPLIT, MAX_RANK, BK, UPCAST)
