"""A tenant's life in the dashboard, in a real Chromium: its limits, its keys, its usage, and the end of its service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.running_lorikeet import RunningLorikeet

pytestmark = pytest.mark.slow

PARTS = [
    "tenant",
    "limit",
    "key",
    "rotate",
    "revoke",
    "usage",
    "csv",
    "everybody",
    "jobs",
    "plans",
    "suspend",
]


def test_a_tenant_lives_in_the_dashboard_from_its_first_limit_to_its_suspension(
    lorikeet: RunningLorikeet, tour: Callable[..., list[str]], pictures: Path
) -> None:
    neighbour = lorikeet.demo["tenants"][0]
    seen = tour(
        "tenancy.mjs",
        LORIKEET_TENANT="lagoon",
        LORIKEET_API_URL=lorikeet.demo["api"],
        LORIKEET_BASE_MODEL=lorikeet.demo["base_model"],
        LORIKEET_NEIGHBOUR=neighbour["slug"],
        LORIKEET_NEIGHBOUR_KEY=neighbour["key"],
        LORIKEET_ADAPTER=neighbour["adapters"][0],
    )
    assert [line.removeprefix("DONE ") for line in seen] == PARTS
    names = {path.name for path in (pictures / "looks").iterdir()}
    for page in ("tenant", "limits", "keys", "usage", "jobs"):
        assert {f"{page}-{size}-{scheme}.png" for size in ("wide", "narrow") for scheme in ("light", "dark")} <= names
