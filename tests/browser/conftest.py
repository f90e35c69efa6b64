"""Runs a tour of the dashboard: a script of `admin_ui/e2e` in Node, which drives Chromium against an installation."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.running_lorikeet import RunningLorikeet, clean_environment

ADMIN_UI = Path(__file__).parents[2] / "admin_ui"
SILENT_FOR_S = 200

Tour = Callable[..., list[str]]


def chromium() -> str:
    found = os.environ.get("LORIKEET_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "no Chromium: install Debian's package `chromium`, or name the program in LORIKEET_CHROMIUM"
    return found


def node() -> str:
    """Node on PATH, else the one that `make` put into the environment."""
    return shutil.which("node") or str(Path(sys.prefix) / "bin" / "node")


def owner_token(lorikeet: RunningLorikeet) -> str:
    """A link signs in once, so every tour asks for its own."""
    printed = subprocess.run(
        [sys.executable, "-m", "lorikeet_platform.cli", "owner-link"],
        env=clean_environment() | {"LORIKEET_DATA_DIR": str(lorikeet.data_dir)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    link = next(word for word in printed.split() if "token=" in word)
    return parse_qs(urlsplit(link).query)["token"][0]


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a tour leaves its pictures."""
    folder = Path(request.config.getoption("--screenshots") or tmp_path).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def tour(lorikeet: RunningLorikeet, pictures: Path) -> Tour:
    """`tour(script, on_line, **settings)`: the lines that it printed; every fault that it saw fails the test."""

    def run(script: str, on_line: Callable[[str], None] | None = None, **settings: str) -> list[str]:
        browser = subprocess.Popen(
            [node(), f"e2e/{script}"],
            cwd=ADMIN_UI,
            env={
                **os.environ,
                "LORIKEET_ADMIN_URL": lorikeet.demo["admin"],
                "LORIKEET_OWNER_TOKEN": owner_token(lorikeet),
                "LORIKEET_SCREENSHOTS": str(pictures),
                "LORIKEET_CHROMIUM": chromium(),
                **settings,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=read_lines, args=(browser, lines), daemon=True).start()
        seen: list[str] = []
        try:
            while (line := lines.get(timeout=SILENT_FOR_S)) is not None:
                seen.append(line)
                if on_line is not None:
                    on_line(line)
            assert browser.wait(timeout=30) == 0, "\n".join(seen)
        finally:
            browser.kill()
        return seen

    return run


def read_lines(browser: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert browser.stdout is not None
    for line in browser.stdout:
        lines.put(line.strip())
    lines.put(None)
