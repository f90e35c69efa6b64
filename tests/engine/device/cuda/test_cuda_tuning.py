"""Measured launch configurations: what the table answers, and how it is filled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from lorikeet_engine.ops import cuda
from lorikeet_engine.ops.triton.tuning.__main__ import main, merged, tune
from lorikeet_engine.ops.triton.tuning.space import Effort, HeadShape, Load, Task, tasks
from lorikeet_engine.ops.triton.tuning.table import Tuned, choose, config_for, read_table, write_table
from tests.support.lora_cases import lora_table

SHAPE: dict[str, int | str] = {"D": 128, "G": 4, "block": 16, "dtype": "bfloat16"}


def entry(kernel: str, warps: int, **changes: int | str) -> Tuned:
    return Tuned(kernel, SHAPE | changes, {"num_warps": warps}, 10.0)


ENTRIES = [entry("decode", 2), entry("decode", 4, G=8), entry("prefill", 8), entry("decode", 16, D=64)]


def test_what_was_measured_for_exactly_this_shape_decides() -> None:
    found = [choose(ENTRIES, "decode", SHAPE | changes)["num_warps"] for changes in ({}, {"G": 8}, {"D": 64})]
    assert found == [2, 4, 16]


def test_what_was_not_measured_changes_nothing() -> None:
    assert choose(ENTRIES, "decode", SHAPE | {"dtype": "float16"}) == {}
    assert choose(ENTRIES, "copy", SHAPE) == {}
    assert config_for("no such kernel", D=3) == {}


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


def small_tasks() -> list[Task]:
    """Every kernel's choice on shapes that the interpreter bears, two configurations each."""
    table = lora_table(32)
    shape = HeadShape(n_heads=4, n_kv_heads=2, width=16, block=8, dtype=torch.float32)
    effort = Effort(decode=(Load(2, 20),), prefill=(Load(1, 12, 7),), lora_rows=(2,), most_configs=2)
    return list(tasks(shape, table, effort, "cpu"))


def test_what_is_tried_is_what_the_launchers_take() -> None:
    """Nothing is launched: configurations are made, and the rule's own is the first."""
    shape = HeadShape(n_heads=4, n_kv_heads=2, width=16, block=8, dtype=torch.bfloat16)
    effort = Effort(decode=(Load(1, 8),), prefill=(Load(1, 8, 8),), lora_rows=(2, 300))
    for task in tasks(shape, lora_table(32), effort, "cpu"):
        assert len(task.configs) == len({str(config) for config in task.configs}) > 20
        assert all(task.calls(config) for config in task.configs[::7])


def test_serving_asks_for_the_keys_that_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, int | str]]] = []

    def noted(kernel: str, **key: int | str) -> dict[str, int]:
        asked.append((kernel, key))
        return {}

    monkeypatch.setattr(cuda, "config_for", noted)
    pages = cuda.PageShape(width=16, group=2, block=8, dtype=torch.float32)
    cuda.decode_config.__wrapped__(pages)
    cuda.prefill_config.__wrapped__(pages, 0)
    for n_in, n_slices in ((32, 3), (32, 1), (32, 2), (64, 1)):
        cuda.lora_config.__wrapped__(True, n_in, n_slices, torch.float32)
    assert asked == [(task.kernel, task.key) for task in small_tasks()]


def test_every_choice_can_be_measured() -> None:
    found = tune(small_tasks(), lambda calls: float(len([call() for call in calls])))
    assert found == []  # all take as long: the rule stands


def test_only_what_gains_becomes_an_entry_and_what_does_not_run_is_passed_over() -> None:
    times = iter([10.0, None, 9.5, 9.9])
    configs = [{"num_warps": warps} for warps in (4, 8, 2, 1)]
    task = Task("decode", {"D": 16}, configs, lambda _: [])

    def timer(calls: Sequence[object]) -> float:
        seconds = next(times)
        if seconds is None:
            raise RuntimeError("out of resources: shared memory")
        return seconds

    assert tune([task], timer) == [Tuned("decode", {"D": 16}, {"num_warps": 2}, 9.5e6)]
    assert tune([task], lambda _: 1.0) == []


def test_measuring_again_replaces_what_was_asked_for_and_keeps_the_rest() -> None:
    task = Task("decode", ENTRIES[0].key, [], lambda _: [])
    assert merged(ENTRIES, [], [task]) == tuple(ENTRIES[1:])


def test_the_command_is_refused_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    with patch("sys.argv", ["tuning", "nowhere"]):
        assert main() == 2
    assert "no CUDA device" in capsys.readouterr().err
