"""The sweep that somebody means: by name in the size for its target, or from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from lorikeet_engine.experiments.scenarios.grid import load_grid
from lorikeet_engine.experiments.scenarios.named import EMBEDDED, NAMED, PUBLISHED, named_scenario
from lorikeet_engine.experiments.scenarios.setup import Scenario

TargetKind = Literal["simulator", "engine"]


def choose_scenario(
    name_or_file: str, on: TargetKind, *, model: str | None = None, device: str | None = None
) -> Scenario:
    """With another model or device than the sweep's own, if given.

    Raises:
        DescriptionError: there is no such sweep, or its file does not describe one.
    """
    size = PUBLISHED if on == "simulator" else EMBEDDED
    path = Path(name_or_file)
    if name_or_file in NAMED or not path.is_file():
        scenario = named_scenario(name_or_file, size)
    else:
        scenario = load_grid(path, model=size.model, device=size.device)
    return replace(scenario, model=model or scenario.model, device=device or scenario.device)
