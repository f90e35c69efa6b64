"""`lorikeet bench serve` against the real gateway and engine: exact lengths, and the counts that are on record."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from lorikeet_engine.experiments.record import read_record
from tests.support.running_lorikeet import RunningLorikeet

pytestmark = pytest.mark.slow

N_REQUESTS, PROMPT, OUTPUT = 8, 40, 12


def on_record(lorikeet: RunningLorikeet) -> tuple[int, int, int]:
    """Requests, prompt tokens and output tokens of all tenants."""
    with sqlite3.connect(lorikeet.data_dir / "lorikeet.db") as database:
        sums = "COUNT(*), COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(completion_tokens), 0)"
        row: tuple[int, int, int] = database.execute(f"SELECT {sums} FROM usage_records").fetchone()
    return row


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_a_load_tests_counts_are_those_on_record(lorikeet: RunningLorikeet, tmp_path: Path, endpoint: str) -> None:
    before = on_record(lorikeet)
    result = lorikeet.cli(
        *("bench", "serve", "--url", lorikeet.demo["api"], "--endpoint", endpoint, "--admin-url"),
        *(lorikeet.demo["admin"], "--concurrency", "3", "--num-prompts", str(N_REQUESTS), "--num-warmups", "0"),
        *("--random-input-len", str(PROMPT), "--random-output-len", str(OUTPUT), "--ignore-eos"),
        *("--lora-modules", "pirate,haiku", "--out", str(tmp_path)),
        key=lorikeet.key("harbour"),
    )
    assert result.returncode == 0, result.stderr
    after = on_record(lorikeet)
    record = read_record(tmp_path / "run.json")
    requests = record.points[0].requests
    assert [request.outcome for request in requests] == ["ok"] * N_REQUESTS
    assert {request.n_output for request in requests} == {OUTPUT}
    if endpoint == "/v1/completions":
        assert {request.n_prompt for request in requests} == {PROMPT}
    counted = (N_REQUESTS, sum(request.n_prompt for request in requests), N_REQUESTS * OUTPUT)
    assert tuple(now - then for now, then in zip(after, before, strict=True)) == counted
    assert Counter(request.adapter for request in requests).keys() == {"pirate", "haiku"}
    assert record.machine.pool_tokens
    assert record.machine.kv_bytes_per_token
    assert (tmp_path / "report.html").is_file()
