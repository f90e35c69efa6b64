"""`lorikeet bench serve` and `lorikeet bench report`: what they print, write and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lorikeet_engine.experiments.record import read_record
from lorikeet_platform.cli import app
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from tests.support.openai_server import Behaviour, openai_server

SMALL = ("--random-input-len", "12", "--random-output-len", "5", "--num-prompts", "6")


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


def failure_of(result: Result) -> CommandFailed:
    assert isinstance(result.exception, CommandFailed), result.output
    return result.exception


def test_a_load_test_prints_its_figures_and_leaves_a_record_that_can_be_drawn_again(tmp_path: Path) -> None:
    with openai_server(behaviours=[Behaviour(pace_s=0.002)]) as server:
        result = bench(
            *("serve", "--url", f"{server.url}/v1", "--max-concurrency", "2", *SMALL, "--seed", "7"),
            *("--metrics-url", f"{server.url}/metrics", "--out", str(tmp_path / "out")),
            *("--goodput", "ttft:60000", "tpot:60000"),
        )
        assert result.exit_code == 0, result.output
        assert len(server.asked) == 6 + 1
    assert "6 ok" in result.output
    assert "6 of 6 requests" in result.output
    assert [line.split()[0] for line in result.stdout.splitlines() if line[:1].islower()][-4:] == [
        *("ttft", "tpot", "itl", "e2el"),
    ]
    assert "agree: 30 output tokens" in result.stderr
    record = read_record(tmp_path / "out" / "run.json")
    (point,) = record.points
    assert (record.source, record.target, record.axis) == ("server", f"{server.url}/v1/completions", "")
    assert (point.setup["concurrency"], point.setup["seed"], point.setup["goodput"]) == (2, 7, "ttft:60000 tpot:60000")
    assert len(point.readings) >= 2
    again = bench("report", str(tmp_path / "out" / "run.json"), "--out", str(tmp_path / "again"))
    assert again.exit_code == 0, again.output
    for name in ("time.png", "report.html", "report.md"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORIKEET_API_KEY", "lk_mine")
    monkeypatch.setenv("OTHER", "sk-other")
    with openai_server() as server:
        bench("serve", "--url", server.url, "--concurrency", "1", "--num-prompts", "1")
        bench("serve", "--url", server.url, "--concurrency", "1", "--num-prompts", "1", "--api-key-env", "OTHER")
    assert server.keys == ["Bearer lk_mine"] * 2 + ["Bearer sk-other"] * 2


def test_what_cannot_be_tested_ends_with_its_own_status() -> None:
    with openai_server(behaviours=[Behaviour(status=401, code="invalid_api_key")]) as server:
        options = ("serve", "--url", server.url)
        assert failure_of(bench(*options, "--concurrency", "1")).exit_code == ExitCode.AUTH
        refused = failure_of(bench(*options, "--concurrency", "1", "--request-rate", "2"))
        assert (refused.exit_code, "--request-rate" in refused.message) == (ExitCode.USAGE, True)
        for more, named in (
            (("--vocab-size", "100", "--concurrency", "1"), "--vocab-size"),
            (("--concurrency", "1", "tpot:50"), "tpot:50"),
            (("--concurrency", "1", "--goodput", "itl:5"), "--goodput"),
        ):
            refused = failure_of(bench(*options, *more))
            assert (refused.exit_code, named in refused.message) == (ExitCode.USAGE, True)
    assert failure_of(bench(*options, "--concurrency", "1")).exit_code == ExitCode.NETWORK


def test_a_server_that_serves_nothing_is_a_failure_with_its_words() -> None:
    with openai_server(behaviours=[Behaviour(status=500, code="engine_failed")]) as server:
        result = bench("serve", "--url", server.url, "--concurrency", "2", "--num-warmups", "0", *SMALL)
    assert failure_of(result).exit_code == ExitCode.FAILED
    assert "6 failed" in result.output
    assert "6 times: engine_failed: no" in result.output


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": 1}')
    assert failure_of(bench("report", str(tmp_path / "run.json"))).exit_code == ExitCode.LOCAL_FILES
    assert failure_of(bench("report", str(tmp_path / "none.json"))).exit_code == ExitCode.LOCAL_FILES


GRID = """
axis: prompt_tokens
load: {prompt_tokens: [4, 8, 12], output_tokens: 3, concurrency: 2, requests_per_client: 2, pause_s: 0}
"""


def test_a_sweep_over_load_runs_on_a_running_server_and_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    (tmp_path / "knob.yaml").write_text(GRID + "engine: {max_num_seqs: 8}\n")
    file = tmp_path / "run.json"
    with openai_server() as server:
        url = ("--url", server.url)
        result = bench("sweep", str(tmp_path / "grid.yaml"), *url, "--json", str(file))
        assert result.exit_code == 0, result.output
        for arguments, named in (
            ((str(tmp_path / "knob.yaml"), *url), "max_num_seqs"),
            ((str(tmp_path / "grid.yaml"), *url, "--on", "engine"), "--on"),
            ((str(tmp_path / "grid.yaml"), *url, "--static", "4"), "--static"),
            ((str(tmp_path / "grid.yaml"), "--metrics-url", server.url), "--metrics-url"),
        ):
            refused = failure_of(bench("sweep", *arguments))
            assert (refused.exit_code, named in refused.message) == (ExitCode.USAGE, True)
    record = read_record(file)
    assert (record.source, [point.setup["prompt_tokens"] for point in record.points]) == ("server", [4, 8, 12])
    assert "ITL p50" in result.output
    assert "KV in use" not in result.output
