"""One release per supported way to run: each `ci/*-values.yaml` of the chart, and the chart with no values at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.chart_release import VALUES_FILES, Release, read_values, render


@pytest.fixture(scope="session", params=[None, *VALUES_FILES], ids=["no-values", *(p.stem for p in VALUES_FILES)])
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    path: Path | None = request.param
    return read_values(path) if path else {}


@pytest.fixture(scope="session")
def release(values: dict[str, Any]) -> Release:
    return render(values)
