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


def test_a_published_experiment_is_reproduced_within_its_bounds(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(benchmark("published_experiment"), tmp_path / "f.json", monkeypatch)
    assert [figure for figure in found if figure["holds"] is False] == []
    assert sum(figure["holds"] is True for figure in found) >= 9


def test_the_table_is_written_between_its_marks(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = benchmark("published_experiment")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    monkeypatch.setattr(module, "DOCS", page)
    module.write_docs([module.Table("Title", ("a", "b"), [("1", "2")])])
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
