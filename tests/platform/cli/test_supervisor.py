"""The supervisor with children that are a few lines long."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from lorikeet_platform.cli.console import CommandFailed
from lorikeet_platform.cli.embedded import supervise
from lorikeet_platform.cli.embedded.addresses import Listener
from lorikeet_platform.cli.embedded.supervise import Supervisor
from lorikeet_platform.cli.embedded.welcome import Demo, DemoTenant, demo_welcome, known_keys

ENGINE = "import os, pathlib, time; pathlib.Path(r'{pids}').open('a').write(f'{os.getpid()}\\n'); time.sleep(60)"
GATEWAY = (
    "import http.server\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self): self.send_response(200); self.end_headers()\n"
    "    def log_message(self, *a): pass\n"
    "http.server.HTTPServer(('127.0.0.1', {port}), H).serve_forever()"
)
DIES = "import sys; sys.exit(3)"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "FIRST_PAUSE_S", 0.05)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until_engines(path: Path, n: int) -> list[int]:
    async with asyncio.timeout(10):
        while len(pids(path)) < n:
            await asyncio.sleep(0.02)
    return pids(path)


def a_supervisor(port: int, pid_file: Path, *, engine: str = ENGINE, gateway: str = GATEWAY) -> Supervisor:
    return Supervisor(
        engine_command=python(engine.replace("{pids}", str(pid_file))),
        gateway_command=python(gateway.replace("{port}", str(port))),
        gateway_environment={},
        ready_url=f"http://127.0.0.1:{port}/readyz",
    )


def test_an_engine_that_dies_is_started_again_and_stopping_leaves_nobody(port: int, tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"

    async def scenario() -> list[int]:
        supervisor = a_supervisor(port, pid_file)
        await supervisor.start()
        watching = asyncio.ensure_future(supervisor.watch())
        [first] = await until_engines(pid_file, 1)
        os.kill(first, signal.SIGKILL)
        started = await until_engines(pid_file, 2)
        assert not watching.done()
        watching.cancel()
        await asyncio.wait({watching})
        await supervisor.stop()
        return started

    assert not any(is_running(pid) for pid in asyncio.run(scenario()))


@pytest.mark.parametrize(
    ("part", "scripts"),
    [
        ("engine", {"engine": DIES, "gateway": ENGINE}),  # a gateway that listens would look ready
        ("gateway", {"gateway": DIES}),
    ],
)
def test_a_part_that_dies_at_start_ends_the_start_with_its_status(
    port: int, tmp_path: Path, part: str, scripts: dict[str, str]
) -> None:
    scripts = {name: script.replace("{pids}", str(tmp_path / "other")) for name, script in scripts.items()}

    async def scenario() -> None:
        supervisor = a_supervisor(port, tmp_path / "pids", **scripts)
        try:
            await supervisor.start()
        finally:
            await supervisor.stop()

    with pytest.raises(CommandFailed, match=f"the {part} ended at start, with status 3"):
        asyncio.run(scenario())


def test_without_the_gateway_nothing_goes_on(port: int, tmp_path: Path) -> None:
    short_lived = GATEWAY.replace(".serve_forever()", ".handle_request()")

    async def scenario() -> None:
        supervisor = a_supervisor(port, tmp_path / "pids", gateway=short_lived)
        try:
            await supervisor.start()
            await supervisor.watch()
        finally:
            await supervisor.stop()

    with pytest.raises(CommandFailed, match="the gateway ended, with status 0"):
        asyncio.run(scenario())
    assert not any(is_running(pid) for pid in pids(tmp_path / "pids"))


def test_a_taken_port_is_one_line_with_the_settings_name(port: int) -> None:
    listener = Listener("127.0.0.1", port, "LORIKEET_API_PORT")
    with listener.open(), pytest.raises(CommandFailed) as refused:
        listener.settled()
    assert refused.value.message == (
        f"127.0.0.1:{port} is taken by another program; choose another port with LORIKEET_API_PORT"
    )
    assert listener.settled() == listener


def test_port_0_becomes_a_real_one_and_any_address_becomes_this_machine() -> None:
    assert Listener("127.0.0.1", 0, "X").settled().port > 0
    assert Listener("0.0.0.0", 80, "X").url == "http://127.0.0.1:80"
    assert Listener("::1", 80, "X").url == "http://[::1]:80"


def test_the_demo_file_holds_the_facts_and_gives_its_keys_back(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    demo = Demo("http://a", "http://b", "once", "tiny", (DemoTenant("harbour", "lk_1", ("pirate", "haiku")),))
    demo.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {
        "api": "http://a",
        "admin": "http://b",
        "owner_token": "once",
        "base_model": "tiny",
        "tenants": [{"slug": "harbour", "key": "lk_1", "adapters": ["pirate", "haiku"]}],
    }
    assert known_keys(path) == {"harbour": "lk_1"}
    path.write_text("{")
    assert known_keys(path) == {}
    text = demo_welcome(demo)
    assert text.count("curl -s http://a/v1/chat/completions") == 2
    assert "http://b/sign-in?token=once" in text
