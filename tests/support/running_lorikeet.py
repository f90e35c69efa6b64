"""`lorikeet up` as a person runs it: a process with three children, real ports, a folder of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WELCOME_WITHIN_S = 600.0  # the demo adapters are certified at a first start, on a machine that tests keep busy
MIB = 1 << 20


@dataclass
class RunningLorikeet:
    """One installation in `data_dir`, started with `lorikeet up --demo`."""

    data_dir: Path
    started_in_s: float
    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list)

    @property
    def demo(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.data_dir / "demo.json").read_text())
        return facts

    def tenant(self, slug: str) -> dict[str, Any]:
        return next(tenant for tenant in self.demo["tenants"] if tenant["slug"] == slug)

    def key(self, slug: str) -> str:
        return str(self.tenant(slug)["key"])

    def curl_lines(self) -> list[str]:
        return [line.strip() for line in self.output if line.strip().startswith("curl ")]

    def cli(self, *arguments: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run one `lorikeet` command against this installation."""
        environment = clean_environment() | {
            "LORIKEET_API_URL": self.demo["api"],
            "LORIKEET_ADMIN_URL": self.demo["admin"],
            "LORIKEET_ADMIN_TOKEN_FILE": str(self.data_dir / "admin.token"),
            "XDG_STATE_HOME": str(self.data_dir / "client-state"),
        }
        if key:
            environment["LORIKEET_API_KEY"] = key
        return subprocess.run(
            [sys.executable, "-m", "lorikeet_platform.cli", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def stop(self) -> float:
        """Ctrl-C; returns the seconds it took to end."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)
        return time.monotonic() - began


def clean_environment() -> dict[str, str]:
    """The environment without settings of whoever runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")}


def start_lorikeet(data_dir: Path, models_dir: Path, **settings: str) -> RunningLorikeet:
    """Start an installation and wait for its welcome; the converted model is shared, everything else is new."""
    data_dir.mkdir(parents=True, exist_ok=True)
    if not (data_dir / "models").exists():
        (data_dir / "models").symlink_to(models_dir)
    environment = clean_environment() | {
        "LORIKEET_DATA_DIR": str(data_dir),
        "LORIKEET_API_PORT": "0",
        "LORIKEET_ADMIN_PORT": "0",
        "LORIKEET_ENGINE__HEALTH_PORT": "0",
        "LORIKEET_ENGINE__KV_CACHE_BYTES": str(256 * MIB),
        "LORIKEET_ENGINE__ADAPTER_POOL_BYTES": str(64 * MIB),
        "PYTHONUNBUFFERED": "1",
        **settings,
    }
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "lorikeet_platform.cli", "up", "--demo"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = RunningLorikeet(data_dir, 0.0, process)
    welcomed = threading.Event()
    threading.Thread(target=_collect, args=(running, welcomed), daemon=True).start()
    while not welcomed.wait(0.1):
        if process.poll() is not None or time.monotonic() - began > WELCOME_WITHIN_S:
            process.kill()
            raise AssertionError("no welcome:\n" + "".join(running.output))
    running.started_in_s = time.monotonic() - began
    return running


def _collect(running: RunningLorikeet, welcomed: threading.Event) -> None:
    assert running.process.stdout is not None
    for line in running.process.stdout:
        running.output.append(line)
        if "Ctrl-C" in line:
            welcomed.set()


def processes_in(folder: Path) -> list[str]:
    """Command lines of processes that still run with `folder` in their environment or arguments (Linux)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if re.search(re.escape(str(folder)).encode(), text) and int(entry.name) != os.getpid():
            found.append(entry.name)
    return found
