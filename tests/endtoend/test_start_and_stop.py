"""Starting again reuses everything; Ctrl-C and a lost engine are survived."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.running_lorikeet import clean_environment, processes_in, start_lorikeet

pytestmark = pytest.mark.slow


def test_a_second_start_reuses_tenants_keys_and_versions_and_ctrl_c_leaves_nothing_running(
    embedded_model_dir: Path, tmp_path: Path
) -> None:
    first = start_lorikeet(tmp_path, embedded_model_dir.parent)
    facts = first.demo
    assert first.stop() < 10
    assert first.process.returncode == 0
    assert processes_in(tmp_path) == []
    assert "Traceback" not in "".join(first.output)

    second = start_lorikeet(tmp_path, embedded_model_dir.parent)
    try:
        assert second.demo["tenants"] == facts["tenants"]
        assert second.demo["owner_token"] != facts["owner_token"]
        headers = {"Authorization": f"Bearer {second.key('harbour')}"}
        shown = httpx.get(f"{second.demo['api']}/v1/adapters/pirate", headers=headers).json()
        assert [version["number"] for version in shown["versions"]] == [1]

        engine = next(pid for pid in processes_in(tmp_path) if is_engine(pid))
        os.kill(int(engine), signal.SIGKILL)
        body = {"model": "pirate", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        statuses = set()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = httpx.post(f"{second.demo['api']}/v1/chat/completions", headers=headers, json=body, timeout=60)
            statuses.add(answer.status_code)
            if answer.status_code == 200 and len(statuses) > 1:
                break
            time.sleep(0.2)
        assert statuses == {200, 503}
    finally:
        second.stop()
    assert processes_in(tmp_path) == []


def is_engine(pid: str) -> bool:
    return b"lorikeet_engine\0" in (Path("/proc") / pid / "cmdline").read_bytes()


def test_a_taken_port_is_named_with_its_setting(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environment = clean_environment() | {
            "LORIKEET_DATA_DIR": str(tmp_path),
            "LORIKEET_API_PORT": str(taken.getsockname()[1]),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "lorikeet_platform.cli", "up"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode != 0
    assert "LORIKEET_API_PORT" in ended.stderr
    assert "Traceback" not in ended.stderr
