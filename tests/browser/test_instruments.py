"""An operator reads findings, the engine's page, a plan and the costs of usage in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.running_lorikeet import RunningLorikeet

pytestmark = pytest.mark.slow

PARTS = ["phases", "finding", "engine", "planner", "refusal", "calibration", "costs"]


def test_an_operator_is_told_what_is_wrong_and_plans_with_the_engines_own_numbers(
    lorikeet: RunningLorikeet, tour: Callable[..., list[str]], pictures: Path
) -> None:
    tenant = lorikeet.demo["tenants"][0]
    seen = tour(
        "instruments.mjs",
        LORIKEET_TENANT=tenant["slug"],
        LORIKEET_KEY=tenant["key"],
        LORIKEET_API_URL=lorikeet.demo["api"],
        LORIKEET_BASE_MODEL=lorikeet.demo["base_model"],
    )
    assert [line.removeprefix("DONE ") for line in seen] == PARTS
    assert {"findings.png", "engine.png", "planner.png"} <= {path.name for path in pictures.iterdir()}
    names = {path.name for path in (pictures / "looks").iterdir()}
    for page in ("findings", "engine", "planner", "planner-refused", "planner-live", "costs"):
        assert {f"{page}-{size}-{scheme}.png" for size in ("wide", "narrow") for scheme in ("light", "dark")} <= names
