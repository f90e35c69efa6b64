"""Choices of how steps are computed that decide how much memory they take; made here, carried out by `execution`."""

from __future__ import annotations

from collections.abc import Sequence

# Tokens are drawn for so many rows at once, which bounds the memory that a draw takes of each logit.
DRAWN_AT_ONCE = 16
BYTES_PER_LOGIT = 50

# Rows of the steps that a GPU records: a step is padded to the next one, by a third of its rows at most.
RECORDED_ROWS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)


def few_numbers(max_rows: int) -> Sequence[int]:
    """Up to and including the most rows, as far as steps are recorded at all."""
    most = min(max_rows, RECORDED_ROWS[-1])
    return [*(rows for rows in RECORDED_ROWS if rows < most), most]
