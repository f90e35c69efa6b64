"""Large quantities as people read them: one unit a column, so that rows can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

Unit = tuple[str, float]
FLOPS: Final[Sequence[Unit]] = (("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15), ("EFLOP", 1e18))
BYTES: Final[Sequence[Unit]] = (("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40), ("PiB", 2.0**50))
HELD: Final[Sequence[Unit]] = (
    ("MiB·s", 2.0**20),
    ("MiB·h", 2.0**20 * 3600),
    ("GiB·h", 2.0**30 * 3600),
    ("TiB·h", 2.0**40 * 3600),
)
_COLUMNS: Final[Sequence[tuple[str, Sequence[Unit], tuple[str, ...]]]] = (
    ("PROMPTS", FLOPS, ("prefill_flops",)),
    ("ANSWERS", FLOPS, ("decode_flops",)),
    ("READ", BYTES, ("prefill_read_bytes", "decode_read_bytes")),
    ("WRITTEN", BYTES, ("write_bytes",)),
    ("KV", HELD, ("kv_byte_seconds",)),
    ("ADAPTERS", HELD, ("adapter_byte_seconds",)),
    ("LOADED", BYTES, ("load_bytes",)),
    ("SWAPPED", BYTES, ("swap_bytes",)),
)


def cost_table(found: Sequence[tuple[Mapping[str, float], int]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of costs, each with how many requests have none."""
    columns, cells = [], []
    for title, units, names in _COLUMNS:
        values = [sum(costs[name] for name in names) for costs, _ in found]
        unit, size = unit_for(values, units)
        columns.append(f"{title} {unit}")
        cells.append([f"{value / size:,.2f}" for value in values])
    columns += ["WASTED", "UNKNOWN"]
    cells.append([f"{costs['wasted_flops'] / (costs['prefill_flops'] or 1.0):.1%}" for costs, _ in found])
    cells.append([f"{n_unknown:,}" for _, n_unknown in found])
    return columns, [list(row) for row in zip(*cells, strict=True)]


def unit_for(values: Sequence[float], units: Sequence[Unit]) -> Unit:
    """The largest unit that the largest value holds."""
    largest = max(values, default=0.0)
    return next((unit for unit in reversed(units) if largest >= unit[1]), units[0])
