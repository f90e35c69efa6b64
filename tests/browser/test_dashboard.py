"""An owner signs in with the one-time link in a real Chromium and sees a tenant's adapter become ready."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from lorikeet_adapters.demo.styles import demo_adapters
from tests.support.running_lorikeet import RunningLorikeet

pytestmark = pytest.mark.slow


def test_the_owner_signs_in_and_sees_an_adapter_become_ready(
    lorikeet: RunningLorikeet, tour: Callable[..., list[str]], pictures: Path
) -> None:
    def push_when_asked(line: str) -> None:
        if line.startswith("WAITING"):
            haiku = next(adapter.path for adapter in demo_adapters() if adapter.name == "haiku")
            pushed = lorikeet.cli("adapters", "push", str(haiku), "--name", "sea-verses", key=lorikeet.key("orchard"))
            assert pushed.returncode == 0, pushed.stderr
            keep_busy(lorikeet)

    seen = tour("dashboard.mjs", push_when_asked, LORIKEET_TENANT="orchard", LORIKEET_ADAPTER="sea-verses")
    assert "ADAPTER absent" in seen
    assert seen[-1] == "ADAPTER ready"
    assert {"overview.png", "adapters.png"} <= {path.name for path in pictures.iterdir()}


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
