"""What a spreadsheet would take for a formula is quoted in CSV, however it is dressed up; nothing else is."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path

import pytest

from lorikeet_platform.usage.export import Sheet, exported


def as_csv(folder: Path, *cells: str) -> list[str]:
    answer = exported(Sheet("cells", ["cell"] * len(cells), [cells], {}), "csv", folder)

    async def body() -> bytes:
        return b"".join([piece async for piece in answer.body_iterator])  # type: ignore[misc]

    [_head, row] = list(csv.reader(asyncio.run(body()).decode().splitlines(keepends=True)))
    return row


@pytest.mark.parametrize(
    "cell", ["=1+1", " =1+1", "\n=1+1", "\t+1", "\uff1d1+1", "\u200b=1", "\u3000\uff0b1", "\ufe63 1", "\x1b@SUM(A1)"]
)
def test_a_formula_is_quoted(tmp_path: Path, cell: str) -> None:
    assert as_csv(tmp_path, cell) == [f"'{cell}"]


@pytest.mark.parametrize("cell", ["", " ", "a=1", "1-1", "naïve", "'=1"])
def test_what_is_none_stays_as_it_is(tmp_path: Path, cell: str) -> None:
    assert as_csv(tmp_path, cell, "x") == [cell, "x"]
