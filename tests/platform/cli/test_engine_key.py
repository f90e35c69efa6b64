"""`lorikeet engine-key` prints a file that both sides of the engine's socket can read."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from lorikeet_engine.socket_keys import SocketKeys
from lorikeet_platform.cli import app


def test_engine_key_prints_a_key_file_that_is_new_each_time(tmp_path: Path) -> None:
    printed = [CliRunner().invoke(app, ["engine-key"]).stdout for _ in range(2)]
    (tmp_path / "socket.key").write_text(printed[0])
    assert SocketKeys.read(tmp_path / "socket.key").text() == printed[0]
    assert printed[0] != printed[1]
