"""Which launch configuration a kernel gets: what was measured on this device, else what its own file reckons.

`tuned.json` holds what `python -m lorikeet_engine.ops.triton.tuning` measured on machines that have a GPU, by the
device's name. Nothing is measured while serving. A kernel's file keeps the rules of thumb (`default_config`), so this
module knows names and numbers only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import torch

from lorikeet_engine.ops.triton.target import INTERPRETED

TABLE = Path(__file__).with_name("tuned.json")
NOTHING: Mapping[str, int] = MappingProxyType({})

Key = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Tuned:
    """One measured choice.

    Attributes:
        key: what the choice was made for. Never how many rows a step has: that would let companions decide how a row's
            sums are cut.
        config: fields of the kernel's configuration that it sets.
        microseconds: the median that won.
    """

    kernel: str
    key: Key
    config: Mapping[str, int]
    microseconds: float


def config_for(kernel: str, **key: int | str) -> Mapping[str, int]:
    """Fields that the kernel's default configuration is to be changed in; empty where nothing was measured."""
    return _config_for(kernel, tuple(sorted(key.items())))


@lru_cache(maxsize=4096)
def _config_for(kernel: str, key: tuple[tuple[str, int | str], ...]) -> Mapping[str, int]:
    return choose(read_table().get(device_name(), ()), kernel, dict(key))


def choose(entries: Sequence[Tuned], kernel: str, key: Key) -> Mapping[str, int]:
    """The entry of the kernel whose key is this one."""
    fitting = (entry.config for entry in entries if entry.kernel == kernel and entry.key == key)
    return next(fitting, NOTHING)


@lru_cache(maxsize=1)
def device_name() -> str:
    """The GPU whose figures apply; none under the interpreter."""
    return "" if INTERPRETED or not torch.cuda.is_available() else torch.cuda.get_device_name()


def read_table(path: Path = TABLE) -> dict[str, tuple[Tuned, ...]]:
    """The shipped table by device."""
    devices: dict[str, list[dict[str, object]]] = json.loads(path.read_text())
    return {name: tuple(Tuned(**entry) for entry in entries) for name, entries in devices.items()}  # type: ignore[arg-type]


def write_table(table: Mapping[str, Sequence[Tuned]], path: Path = TABLE) -> None:
    """One entry a line, so that a change is read as one."""
    parts = []
    for name in sorted(table):
        ordered = sorted(table[name], key=lambda entry: (entry.kernel, json.dumps(dict(entry.key), sort_keys=True)))
        lines = ",\n".join(f"    {json.dumps(_plain(entry), sort_keys=True)}" for entry in ordered)
        parts.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n" if parts else "{}\n")


def _plain(entry: Tuned) -> dict[str, object]:
    return {
        "kernel": entry.kernel,
        "key": dict(entry.key),
        "config": dict(entry.config),
        "microseconds": round(entry.microseconds, 2),
    }
