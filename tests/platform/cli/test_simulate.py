"""`lorikeet simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lorikeet_platform.cli import app
from lorikeet_platform.cli.console import CommandFailed, ExitCode

SMALL = """
name: small
model: smollm2-135m
device: cpu2
n_requests: 5
tenants:
  - name: t
    arrivals: {kind: poisson, rate: 1}
    prompt: {value: 20}
    output: {value: 5}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_a_report_is_printed_and_written(small: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["simulate", str(small), "--json", str(tmp_path / "r.json"), "--png", str(tmp_path / "r.png"), "--static", "2"],
    )
    assert result.exit_code == 0, result.output
    assert "5 submitted, 5 completed" in result.output
    assert "STATIC BATCHES" in result.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["requests"]["completed"] == 5
    assert report["static_batching"]["batch_size"] == 2
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_another_device_gives_other_times(small: Path) -> None:
    first, second = (
        CliRunner().invoke(app, ["simulate", str(small), "--device", device]).output for device in ("cpu2", "h200")
    )
    assert first != second


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.yaml"], "there is no file nothing.yaml"),
        (["chat", "--device", "abacus"], "there is no device abacus"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert isinstance(result.exception, CommandFailed)
    assert result.exception.exit_code is ExitCode.USAGE
    assert said in result.exception.message
