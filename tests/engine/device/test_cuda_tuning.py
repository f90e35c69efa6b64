"""The table of measured launch configurations: what it answers, and that it is read as it was written."""

from __future__ import annotations

from pathlib import Path

from lorikeet_engine.ops.triton.tuning import Tuned, choose, config_for, read_table, write_table

SHAPE: dict[str, int | str] = {"D": 128, "G": 4, "block": 16, "dtype": "bfloat16"}


def entry(kernel: str, bucket: int, warps: int, **changes: int | str) -> Tuned:
    return Tuned(kernel, SHAPE | {"bucket": bucket} | changes, {"num_warps": warps}, 10.0)


ENTRIES = [entry("decode", 8, 2), entry("decode", 64, 4), entry("prefill", 64, 8), entry("decode", 8, 16, D=64)]


def test_the_smallest_bucket_that_holds_the_batch_decides() -> None:
    found = [choose(ENTRIES, "decode", SHAPE | {"bucket": n})["num_warps"] for n in (1, 8, 9, 64, 500)]
    assert found == [2, 2, 4, 4, 4]


def test_what_was_not_measured_changes_nothing() -> None:
    assert choose(ENTRIES, "decode", SHAPE | {"dtype": "float16", "bucket": 8}) == {}
    assert choose(ENTRIES, "copy", SHAPE) == {}
    assert config_for("no such kernel", bucket=3) == {}


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    write_table({"B": ENTRIES[:1], "A": ENTRIES}, file)
    table = read_table(file)
    assert list(table) == ["A", "B"]
    assert all(entry in table["A"] for entry in ENTRIES)
    assert len(file.read_text().splitlines()) == 2 + 2 * 2 + len(ENTRIES) + 1
    write_table({}, file)
    assert read_table(file) == {}


def test_the_shipped_table_can_be_read() -> None:
    for entries in read_table().values():
        assert all(isinstance(value, int) for entry in entries for value in entry.config.values())
