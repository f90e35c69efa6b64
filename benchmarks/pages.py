"""Tables that benchmarks write into the documentation, between two marks of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a page."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def write_tables(tables: Sequence[Table], page: Path) -> None:
    """Replace what stands between the page's two marks."""
    text = page.read_text()
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    page.write_text(head + BEGIN + "\n\n" + "\n".join(_markdown(table) for table in tables) + "\n" + tail)


def _markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", _line(table.columns), _line(["---"] * len(table.columns))]
    return "\n".join([*lines, *(_line(row) for row in table.rows), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
