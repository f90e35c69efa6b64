"""Costs as a table: one unit a column, taken from the largest, so that rows can be compared."""

from __future__ import annotations

import pytest

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.cli.quantities import BYTES, FLOPS, HELD, cost_table, unit_for


@pytest.mark.parametrize(
    ("values", "units", "name"),
    [
        ([0.0], FLOPS, "GFLOP"),
        ([5e11, 2e12], FLOPS, "TFLOP"),
        ([3e19], FLOPS, "EFLOP"),
        ([2.0**30], BYTES, "GiB"),
        ([2.0**30 - 1], BYTES, "MiB"),
        ([2.0**30 * 3600], HELD, "GiB·h"),
        ([], HELD, "MiB·s"),
    ],
)
def test_the_largest_value_chooses_the_unit(values: list[float], units: list[tuple[str, float]], name: str) -> None:
    assert unit_for(values, units)[0] == name


def test_rows_have_the_same_units_and_the_share_that_was_wasted() -> None:
    nothing = dict.fromkeys(COSTS, 0.0)
    large = nothing | {"prefill_flops": 4e12, "wasted_flops": 1e12, "decode_read_bytes": 3 * 2.0**30}
    small = nothing | {"prefill_flops": 5e10, "prefill_read_bytes": 2.0**29, "kv_byte_seconds": 7 * 2.0**20}
    columns, rows = cost_table([(large, 2), (small, 1_000), (nothing, 0)])
    by_column = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [row["PROMPTS TFLOP"] for row in by_column] == ["4.00", "0.05", "0.00"]
    assert [row["READ GiB"] for row in by_column] == ["3.00", "0.50", "0.00"]
    assert [row["KV MiB·s"] for row in by_column] == ["0.00", "7.00", "0.00"]
    assert [row["WASTED"] for row in by_column] == ["25.0%", "0.0%", "0.0%"]
    assert [row["UNKNOWN"] for row in by_column] == ["2", "1,000", "0"]
