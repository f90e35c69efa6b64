"""Devices and models by name: what is shipped, or a path to one's own."""

from __future__ import annotations

import json
from pathlib import Path

from lorikeet_engine.cost import DEVICES, DeviceProfile, load_profile
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import ModelSpec, spec_from_config
from lorikeet_engine.simulation.workload.strict_records import DescriptionError

MODELS = Path(__file__).parent / "models"  # transformers' config.json of published models


def load_device(name_or_path: str) -> DeviceProfile:
    try:
        return load_profile(_find(name_or_path, DEVICES, "device"))
    except ValueError as error:
        raise DescriptionError(str(error)) from None


def load_model(name_or_path: str) -> ModelSpec:
    try:
        config = json.loads(_find(name_or_path, MODELS, "model").read_text())
        return spec_from_config(config, eos=config.get("eos_token_id"))
    except (KeyError, UnsupportedModel, ValueError) as error:
        raise DescriptionError(f"model {name_or_path}: {error}") from None


def _find(name_or_path: str, shipped: Path, what: str) -> Path:
    for path in (Path(name_or_path), shipped / f"{name_or_path}.json"):
        if path.is_file():
            return path
    names = ", ".join(sorted(path.stem for path in shipped.glob("*.json")))
    raise DescriptionError(f"there is no {what} {name_or_path}; shipped: {names}")
