"""Sweeps of one's own: a file in which every load or engine setting that has a list of values is varied.

name: budgets by length
axis: max_num_batched_tokens
model: qwen2.5-7b
device: rtx4090
load: {prompt_tokens: [1024, 4096], concurrency: 16}
pool_tokens: 86864
engine: {max_num_batched_tokens: [1024, 2048], enable_prefix_caching: false}
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lorikeet_engine.experiments.record import SetupValue
from lorikeet_engine.experiments.scenarios.setup import Load, Scenario, Setup
from lorikeet_engine.simulation.workload.strict_records import DescriptionError, read_record

KEYS = ("name", "axis", "model", "device", "load", "pool_tokens", "engine")
MAX_POINTS = 1000


def load_grid(path: Path, *, model: str, device: str) -> Scenario:
    """The sweep that a file describes; `model` and `device` are for one that names none.

    Raises:
        DescriptionError: what is wrong with it, by name.
    """
    try:
        described = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DescriptionError(f"{path} cannot be read: {error}") from None
    return read_grid(described, name=path.stem, model=model, device=device)


def read_grid(described: object, *, name: str, model: str, device: str) -> Scenario:
    if not isinstance(described, Mapping):
        raise DescriptionError("a sweep must be a mapping")
    if unknown := [str(key) for key in described if key not in KEYS]:
        raise DescriptionError(f"unknown key {unknown[0]}; known here: {', '.join(KEYS)}")
    load, engine = (_settings(described.get(key, {}), key) for key in ("load", "engine"))
    pool = {"pool_tokens": _values(described.get("pool_tokens", 0), "pool_tokens")}
    _check_size((load, pool, engine))
    varied = [key for settings in (load, pool, engine) for key, values in settings.items() if len(values) > 1]
    setups = [
        Setup(load=read_record(Load, one_load, "load"), pool_tokens=_whole(one_pool["pool_tokens"]), engine=one_engine)
        for one_load, one_pool, one_engine in itertools.product(
            _combinations(load), _combinations(pool), _combinations(engine)
        )
    ]
    return Scenario(
        name=_text(described, "name", name),
        axis=_axis(described, varied),
        model=_text(described, "model", model),
        device=_text(described, "device", device),
        setups=setups,
    )


def _settings(value: object, key: str) -> dict[str, list[SetupValue]]:
    if not isinstance(value, Mapping):
        raise DescriptionError(f"{key} must be a mapping")
    return {str(name): _values(values, f"{key}.{name}") for name, values in value.items()}


def _values(value: object, place: str) -> list[SetupValue]:
    """What a setting is varied over; one value stands for itself."""
    values: list[Any] = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, int | float | str | bool) for one in values):
        raise DescriptionError(f"{place} must be a number, a text, true or false, or a list of such")
    return values


def _check_size(parts: Iterable[Mapping[str, Sequence[SetupValue]]]) -> None:
    """Before any of them is made."""
    n_points = math.prod(len(values) for settings in parts for values in settings.values())
    if n_points > MAX_POINTS:
        raise DescriptionError(f"{n_points} combinations are more than {MAX_POINTS}")


def _combinations(settings: Mapping[str, Sequence[SetupValue]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*settings.values()):
        yield dict(zip(settings, values, strict=True))


def _axis(described: Mapping[Any, object], varied: Sequence[str]) -> str:
    """As said, or the only thing that varies."""
    if "axis" not in described and len(varied) > 1:
        raise DescriptionError(f"{', '.join(varied)} all vary: say which of them is the axis")
    return _text(described, "axis", varied[0] if varied else "")


def _text(described: Mapping[Any, object], key: str, default: str) -> str:
    value = described.get(key, default)
    if not isinstance(value, str):
        raise DescriptionError(f"{key} must be a text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DescriptionError("pool_tokens must be a whole number")
    return value
