"""What a step does to rows at its ends: token embeddings in, the likeliest token out.

    gather_rows(table=[N, W], rows=int64 [S]) -> [S, W]
    greedy(logits=[S, vocab]) -> (int64 [S] first of the largest, bool [S] whether it is finite)

A vocabulary is searched in pieces by many programs and their finds by one, so that one row does not wait for one
multiprocessor. A NaN counts as larger than everything, and its row as not finite.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from lorikeet_engine.ops.triton.target import INTERPRETED, dot_operand

COLUMNS: Final = 2048
# Of the vocabulary; and what one program reads at a time of it.
PIECE: Final = 8192
READ_AT_ONCE: Final = 2048


def gather_rows(*, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """table[rows]; the rows of `table` may have gaps between them."""
    width = table.shape[1]
    out = torch.empty(rows.numel(), width, dtype=table.dtype, device=table.device)
    if rows.numel():
        columns = min(COLUMNS, triton.next_power_of_2(width))
        gather_rows_kernel[(rows.numel(), triton.cdiv(width, columns))](
            table, rows, out, table.stride(0), W=width, COLUMNS=columns, num_warps=4
        )
    return out


def greedy(*, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first of equal maxima; which token a row that is not finite gets means nothing."""
    n_rows, vocab = logits.shape
    device = logits.device
    tokens = torch.empty(n_rows, dtype=torch.int64, device=device)
    finite = torch.empty(n_rows, dtype=torch.bool, device=device)
    if n_rows == 0:
        return tokens, finite
    pieces = triton.cdiv(vocab, PIECE)
    best = torch.empty(n_rows, pieces, dtype=torch.float32, device=device)
    where = torch.empty(n_rows, pieces, dtype=torch.int64, device=device)
    greedy_piece_kernel[(n_rows, pieces)](
        logits,
        best,
        where,
        logits.stride(0),
        VOCAB=vocab,
        PIECES=pieces,
        PIECE=PIECE,
        AT_ONCE=min(READ_AT_ONCE, triton.next_power_of_2(vocab)),
        UPCAST=INTERPRETED,
        num_warps=4,
    )
    greedy_merge_kernel[(n_rows,)](
        best,
        where,
        tokens,
        finite.view(torch.uint8),
        PIECES=pieces,
        WIDTH=triton.next_power_of_2(pieces),
        num_warps=1,
    )
    return tokens, finite


@triton.jit(do_not_specialize_on_alignment=["rows"])
def gather_rows_kernel(
    table: tl.tensor,
    rows: tl.tensor,
    out: tl.tensor,
    stride: tl.tensor,
    W: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    index = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = column < W
    row = tl.load(rows + index)
    tl.store(out + index * W + column, tl.load(table + row * stride + column, mask=mask, other=0.0), mask=mask)


@triton.jit
def greedy_piece_kernel(
    logits: tl.tensor,
    best: tl.tensor,
    where: tl.tensor,
    stride: tl.tensor,
    VOCAB: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    AT_ONCE: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, AT_ONCE)
    top = tl.full([AT_ONCE], float("-inf"), tl.float32)
    place = piece * PIECE + lane
    for first in range(piece * PIECE, min(piece * PIECE + PIECE, VOCAB), AT_ONCE):
        column = first + lane
        x = tl.load(logits + row * stride + column, mask=column < VOCAB, other=float("-inf"))
        x = dot_operand(x, UPCAST).to(tl.float32)
        x = tl.where(x == x, x, float("inf"))
        # Only what is larger: of equal values a lane keeps its first.
        place = tl.where(x > top, column, place)
        top = tl.maximum(top, x)
    largest = tl.max(top, 0)
    tl.store(best + row * PIECES + piece, largest)
    tl.store(where + row * PIECES + piece, tl.min(tl.where(top == largest, place, VOCAB), 0).to(tl.int64))


@triton.jit
def greedy_merge_kernel(
    best: tl.tensor,
    where: tl.tensor,
    tokens: tl.tensor,
    finite: tl.tensor,
    PIECES: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    row, piece = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    mask = piece < PIECES
    top = tl.load(best + row * PIECES + piece, mask=mask, other=float("-inf"))
    place = tl.load(where + row * PIECES + piece, mask=mask, other=0)
    largest = tl.max(top, 0)
    is_best = mask & (top == largest)
    tl.store(tokens + row, tl.min(tl.where(is_best, place, 0x7FFFFFFFFFFFFFFF), 0))
    tl.store(finite + row, (tl.abs(largest) != float("inf")).to(tl.uint8))
