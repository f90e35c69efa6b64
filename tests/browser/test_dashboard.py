"""An owner signs in with the one-time link in a real Chromium and sees a tenant's adapter become ready."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from lorikeet_adapters.demo.styles import demo_adapters
from tests.support.running_lorikeet import RunningLorikeet

pytestmark = pytest.mark.slow

ADMIN_UI = Path(__file__).parents[2] / "admin_ui"


def chromium() -> str:
    found = os.environ.get("LORIKEET_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "no Chromium: install Debian's package `chromium`, or name the program in LORIKEET_CHROMIUM"
    return found


def node() -> str:
    """Node on PATH, else the one that `make` put into the environment."""
    return shutil.which("node") or str(Path(sys.prefix) / "bin" / "node")


def test_the_owner_signs_in_and_sees_an_adapter_become_ready(
    lorikeet: RunningLorikeet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    screenshots = request.config.getoption("--screenshots") or tmp_path
    browser = subprocess.Popen(
        [node(), "e2e/dashboard.mjs"],
        cwd=ADMIN_UI,
        env={
            **os.environ,
            "LORIKEET_ADMIN_URL": lorikeet.demo["admin"],
            "LORIKEET_OWNER_TOKEN": lorikeet.demo["owner_token"],
            "LORIKEET_TENANT": "orchard",
            "LORIKEET_ADAPTER": "sea-verses",
            "LORIKEET_SCREENSHOTS": str(Path(screenshots).resolve()),
            "LORIKEET_CHROMIUM": chromium(),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=read_lines, args=(browser, lines), daemon=True).start()
    seen: list[str] = []
    while (line := lines.get(timeout=180)) is not None:
        seen.append(line.strip())
        if line.startswith("WAITING"):
            haiku = next(adapter.path for adapter in demo_adapters() if adapter.name == "haiku")
            pushed = lorikeet.cli("adapters", "push", str(haiku), "--name", "sea-verses", key=lorikeet.key("orchard"))
            assert pushed.returncode == 0, pushed.stderr
            keep_busy(lorikeet)
    assert browser.wait(timeout=30) == 0, "\n".join(seen)
    assert "ADAPTER absent" in seen
    assert seen[-1] == "ADAPTER ready"
    assert {"overview.png", "adapters.png"} <= {path.name for path in Path(screenshots).iterdir()}


# A few blocks long, so that the second request of an adapter finds them in the prefix cache.
INSTRUCTIONS = (
    "You are the narrator of a small harbour town. You know its boats, its orchards, its market and its weather, and "
    "you know everybody who lives there by name. You answer in whole sentences, you never hurry, and you end every "
    "story with a question to the listener that follows from what you have just told."
)


def keep_busy(lorikeet: RunningLorikeet) -> None:
    """Two requests on every adapter, one after the other, so that the overview has something to show."""

    def ask(key: str, model: str) -> None:
        for question in ("Tell me a long story.", "Tell me another one."):
            messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
            httpx.post(
                f"{lorikeet.demo['api']}/v1/chat/completions",
                headers={"Authorization": f"Bearer {key}"},
                json={"model": model, "messages": messages, "max_tokens": 60, "temperature": 1.5, "seed": 1},
                timeout=60,
            )

    for tenant in lorikeet.demo["tenants"]:
        for model in [*tenant["adapters"], lorikeet.demo["base_model"]]:
            threading.Thread(target=ask, args=(tenant["key"], model), daemon=True).start()


def read_lines(browser: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert browser.stdout is not None
    for line in browser.stdout:
        lines.put(line)
    lines.put(None)
