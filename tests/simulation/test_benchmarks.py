"""The benchmarks that simulate, in their quick form: what they promise holds, and their files have the agreed shape."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.cost import DEVICES, load_profile
from lorikeet_engine.simulation.fit import fit

ROOT = Path(__file__).parents[2]
NOT_PROMISED = {"queueing at C=16, L=1024, mean"}  # how many requests were sent is not known, and it sets the mean
ROWS_OF_O2 = {
    "peak KV use, slope x pool",
    "peak KV use, R²",
    "peak KV use at L=4096",
    "ITL p50, intercept",
    "ITL p50, slope",
    "ITL p50, R²",
    *(f"{what} at L={length}" for what in ("MFU", "MBU", "FLOPs", "bytes read") for length in (256, 4096)),
    "iterations at L=256",
    "pure prefill steps at L=4096",
    "pure decode steps at L=4096",
    "prefill over decode at L=4096",
    "prefill of 1024 alone, p50 TTFT",
    "prefill of 1024 at C=16, p50 TTFT",
    "prefill interference",
    "p99 TTFT at L=4096",
    "p90 ITL at L=4096",
    "total tokens/s rise with L, 4096 : 256",
    "output tokens/s fall with L, 256 : 4096",
    "output at equal KV occupancy, crowded : long",
    *(f"{phase} intensity at L={length}" for phase in ("decode", "prefill") for length in (256, 4096)),
    "peak KV use at L=4096, larger pool",
    "requests of L=4096 that a larger pool holds",
}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a benchmark as its command would find it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def figures(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    assert all(set(figure) == {"name", "value", "unit", "target", "holds"} for figure in found)
    return found


def run(module: Any, path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> list[dict[str, Any]]:
    monkeypatch.setattr(sys, "argv", [module.__name__, "--quick", "--json", str(path), *options])
    module.main()
    return figures(path)


def test_the_shipped_profile_is_the_fitted_one() -> None:
    assert load_profile(DEVICES / "rtx4090.json") == fit()


def test_o2_every_figure_of_the_published_experiment_is_reproduced_within_its_bound(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {figure["name"]: figure for figure in run(benchmark("published_experiment"), tmp_path / "f", monkeypatch)}
    assert {name for name, figure in found.items() if figure["holds"] is None} == NOT_PROMISED
    assert [figure for figure in found.values() if figure["holds"] is False] == []
    assert found.keys() == ROWS_OF_O2 | NOT_PROMISED


def test_o2_the_opening_burst_admits_as_many_as_published_within_one_request(benchmark: Any) -> None:
    """And then nobody waits, and all decode."""
    module = benchmark("published_experiment")
    target = module.simulator_target(module.PUBLISHED.model, module.PUBLISHED.device)
    (long,) = module.run(target, [module.PUBLISHED.setup(4096)])
    opening = module.opening_rows(long)
    assert [published for published, _ in opening] == [2, 5, 7, 10, 12, 15, 16]
    for published, reading in opening:
        assert abs(reading.running - published) <= 1
        assert reading.running + reading.waiting == 16
    before, after = long.reading_at(7), long.reading_at(9)
    assert (after.running, after.waiting) == (16, 0)
    assert after.steps["decode"] > before.steps["decode"]
    assert after.steps["mixed"] == before.steps["mixed"]


def test_o2_the_slope_of_kv_use_falls_by_the_part_of_the_prompts_that_is_shared(benchmark: Any) -> None:
    module = benchmark("published_experiment")
    target = module.simulator_target(module.PUBLISHED.model, module.PUBLISHED.device)
    size = module.replace(module.PUBLISHED, lengths=(256, 512, 1024), requests_per_client=2)
    slopes = []
    for share in (0.0, 0.5):
        sweep = module.run(target, [size.setup(length, shared=share) for length in size.lengths])
        slopes.append(module.kv_line(sweep).slope)
    whole, half = slopes
    assert whole == pytest.approx(16, rel=0.01)
    assert half == pytest.approx(16 / 2 + 1 / 2, rel=0.02)  # the head is there once


def test_tables_are_written_between_their_marks(benchmark: Any, tmp_path: Path) -> None:
    module = benchmark("pages")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    module.write_tables([module.Table("Title", ("a", "b"), [("1", "2")])], page)
    assert page.read_text() == (
        "before\n<!-- tables: begin -->\n\n### Title\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
        "<!-- tables: end -->\nafter\n"
    )


def test_static_batching_shows_the_articles_batch(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {figure["name"]: figure for figure in run(benchmark("static_batching"), tmp_path / "f.json", monkeypatch)}
    assert found["rows of use at half time"]["value"] <= 2
    assert found["static over continuous time, long and short mixed"]["value"] > 2
    assert found["static over continuous time, several such batches"]["value"] > 3


def test_churn_is_measured_in_a_process_of_its_own(benchmark: Any) -> None:
    values = benchmark("adapter_churn").simulate_apart("gdsf", 300)
    assert values["requests"]["completed"] == 300
    assert values["peak_gib"] < 2.0
    assert values["cpu_s"] > 0
