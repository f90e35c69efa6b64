"""What the benchmarks share: figures with their targets, the table that shows them, and the file that keeps them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `holds` is None where nothing was promised."""

    name: str
    value: float
    unit: str
    target: str = ""
    holds: bool | None = None

    def cells(self) -> tuple[str, ...]:
        holds = "" if self.holds is None else "yes" if self.holds else "NO"
        return self.name, f"{self.value:.5g} {self.unit}".rstrip(), self.target, holds


COLUMNS = ("figure", "value", "target", "holds")


def at_most(name: str, value: float, unit: str, bound: float) -> Figure:
    return Figure(name, value, unit, f"<= {bound:g}", value <= bound)


def at_least(name: str, value: float, unit: str, bound: float) -> Figure:
    return Figure(name, value, unit, f">= {bound:g}", value >= bound)


def near(name: str, value: float, unit: str, expected: float, tolerance: float) -> Figure:
    """Within `tolerance` (a share) of what is expected."""
    holds = abs(value - expected) <= tolerance * abs(expected)
    return Figure(name, value, unit, f"{expected:g} ± {100 * tolerance:g} %", holds)


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--quick", action="store_true", help="a smaller run, under a minute")
    return parser


def present(title: str, figures: Sequence[Figure], json_file: Path | None) -> None:
    print_table(title, COLUMNS, [figure.cells() for figure in figures])
    write_json(figures, json_file)


def write_json(figures: Sequence[Figure], json_file: Path | None) -> None:
    if json_file:
        json_file.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(title)  # noqa: T201
    for row in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())  # noqa: T201
    print()  # noqa: T201
