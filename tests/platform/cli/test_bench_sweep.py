"""`lorikeet bench sweep`: tables, record and figures of a sweep, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lorikeet_engine.experiments.record import RunRecord, read_record
from lorikeet_platform.cli import app
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.tools.bench import report
from tests.support.tiny_models import save_model

LENGTHS = """
model: smollm2-135m
device: cpu2
load: {prompt_tokens: [32, 64, 128], output_tokens: 8, concurrency: 4, requests_per_client: 1}
engine: {enable_prefix_caching: false}
"""


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(LENGTHS)
    return path


def test_points_and_lines_are_printed_and_the_record_is_written(sweep_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    result = CliRunner().invoke(app, ["bench", "sweep", str(sweep_file), "--json", str(file)])
    assert result.exit_code == 0, result.output
    header, *rows = [line.split() for line in result.output.splitlines()]
    assert header[0] == "PROMPT_TOKENS"
    assert [row[0] for row in rows[:3]] == ["32", "64", "128"]
    assert "KV in use at the peak" in result.output
    assert "as if KV were read at" in result.output
    record = read_record(file)
    assert (record.name, record.axis, len(record.points)) == ("mine", "prompt_tokens", 3)


def test_static_batches_stand_beside_the_continuous_ones(sweep_file: Path) -> None:
    output = CliRunner().invoke(app, ["bench", "sweep", str(sweep_file), "--static", "4"]).output
    assert "ROWS OF USE" in output
    assert output.count("4.0 of 4") == 3


def test_the_report_is_drawn_where_it_is_asked_for(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[RunRecord, Path]] = []
    monkeypatch.setattr(report, "draw", lambda record, folder: drawn.append((record, folder)))
    result = CliRunner().invoke(app, ["bench", "sweep", str(sweep_file), "--figures", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert [(record.name, folder) for record, folder in drawn] == [("mine", tmp_path)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "there is no file nothing and no sweep of that name; sweeps: lengths, lengths-alone"),
        (["lengths", "--device", "abacus"], "there is no device abacus"),
        (["lengths", "--on", "engine", "--static", "4"], "--static is a mode of the simulator"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["bench", "sweep", *arguments])
    assert isinstance(result.exception, CommandFailed)
    assert result.exception.exit_code == ExitCode.USAGE
    assert said in result.exception.message


@pytest.mark.slow
def test_a_real_engine_computes_the_sweep_in_a_process_of_its_own(tmp_path: Path) -> None:
    model = save_model("llama", tmp_path / "model")
    grid = tmp_path / "mine.yaml"
    grid.write_text("load: {prompt_tokens: 16, output_tokens: 4, concurrency: [1, 2]}\npool_tokens: 2048\n")
    file = tmp_path / "r.json"
    arguments = ["bench", "sweep", str(grid), "--on", "engine", "--device", "cpu", "--model", str(model)]
    result = CliRunner().invoke(app, [*arguments, "--json", str(file)])
    assert result.exit_code == 0, result.output
    record = read_record(file)
    assert (record.source, record.axis, len(record.points)) == ("engine", "concurrency", 2)
    assert record.machine.copy_bandwidth
