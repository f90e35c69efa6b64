"""`lorikeet bench serve` and `lorikeet bench report`: what they print, write and refuse."""

from __future__ import annotations

import subprocess
import sys
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


def test_a_sweep_tells_what_was_not_served_and_fails_when_a_point_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    full, drawn = Behaviour(status=429, code="full", headers={"retry-after-ms": "1"}), tmp_path / "drawn"
    first = [Behaviour()] * 5  # a warm-up and four requests
    second = [Behaviour(), Behaviour(), full, Behaviour(), Behaviour()]
    with openai_server(behaviours=[*first, *second, Behaviour(), full]) as server:
        arguments = (str(tmp_path / "grid.yaml"), "--url", server.url, "--figures", str(drawn))
        result = bench("sweep", *arguments)
    failed = failure_of(result)
    assert (failed.exit_code, failed.message) == (ExitCode.FAILED, "nothing was served at 1 of 3 points")
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line[:1].isdigit()}
    assert (rows["4"][1], rows["8"][1:4], rows["12"][1:]) == ("4", ["3", "1", "refused"], ["0", "4", "refused"])
    assert "prompt_tokens 8: 1 times: full: no" in result.stderr
    assert "prompt_tokens 12: Nothing was served" in result.stderr
    assert "prompt_tokens 8: Clients that were not served waited" in " ".join(result.stderr.split())
    assert (drawn / "points.png").is_file()


def test_a_password_in_an_address_is_in_nothing_that_is_printed_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LORIKEET_API_KEY", raising=False)
    (tmp_path / "grid.yaml").write_text(GRID)
    with openai_server() as server:
        url = ("--url", server.url.replace("//", "//alice:s3cret@"))
        served = bench("serve", *url, "--concurrency", "1", *SMALL, "--out", str(tmp_path / "out"))
        swept = bench("sweep", str(tmp_path / "grid.yaml"), *url, "--json", str(tmp_path / "out" / "sweep.json"))
        monkeypatch.setenv("LORIKEET_API_KEY", "lk_mine")
        assert failure_of(bench("serve", *url, "--concurrency", "1")).exit_code == ExitCode.USAGE
    assert (served.exit_code, swept.exit_code) == (0, 0), served.output + swept.output
    written = [path.read_bytes() for path in (tmp_path / "out").iterdir()]
    assert len(written) >= 5
    assert not any(b"s3cret" in text for text in (*written, served.output.encode(), swept.output.encode()))


def test_figures_that_nobody_has_are_none() -> None:
    with openai_server(behaviours=[Behaviour(is_mute=True)]) as server:
        result = bench("serve", "--url", server.url, "--concurrency", "1", *SMALL)
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line[:1].islower()}
    assert (rows["ttft"], rows["itl"]) == (["–"] * 4, ["–"] * 4)
    assert "–" not in rows["e2el"]


def test_the_help_says_where_an_option_differs_from_vllms() -> None:
    said = " ".join(bench("serve", "--help").output.replace("│", " ").split())
    assert "Apart by commas; vLLM's by spaces" in said
    assert "--max-concurrency also caps a --request-rate; not here" in said


def test_the_command_line_starts_without_what_draws() -> None:
    check = "import sys, lorikeet_platform.cli.commands.bench; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
