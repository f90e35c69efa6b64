"""An adapter's whole life in the dashboard, in a real Chromium: from an upload that is cut to its deletion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lorikeet_adapters.demo.styles import demo_adapters

pytestmark = pytest.mark.slow

PARTS = ["cut", "upload", "certificate", "second", "canary", "conflict", "quarantine", "retire", "delete"]


def test_an_adapter_lives_in_the_dashboard_from_a_cut_upload_to_its_deletion(
    tour: Callable[..., list[str]], pictures: Path
) -> None:
    folders = {adapter.name: str(adapter.path) for adapter in demo_adapters()}
    seen = tour(
        "adapters.mjs",
        LORIKEET_TENANT="orchard",
        LORIKEET_ADAPTER="harbour-notices",
        LORIKEET_FIRST_FILES=folders["haiku"],
        LORIKEET_SECOND_FILES=folders["pirate"],
    )
    assert [line.removeprefix("DONE ") for line in seen] == PARTS
    assert {"version.png", "adapter.png", "upload-resumed.png"} <= {path.name for path in pictures.iterdir()}
