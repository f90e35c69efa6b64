"""A PEFT output directory on the user's machine, before anything is sent.

Finds the two files that are uploaded, runs the cheap checks (configuration and header, the same code as the server),
and lists what stays behind. It reads no weights but to hash them, and imports neither numpy nor torch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lorikeet_adapters.config import MAX_CONFIG_BYTES, read_config
from lorikeet_adapters.errors import AdapterRejected, listed, quoted
from lorikeet_adapters.files import CONFIG_FILE, WEIGHTS_FILE
from lorikeet_adapters.header import read_header

_SHARD_INDEX: Final = f"{WEIGHTS_FILE}.index.json"
_SHARDS: Final = "adapter_model-*.safetensors"
_PICKLE: Final = "adapter_model.bin"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """One file to upload; `name` is what the server calls it."""

    path: Path
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """The files of one adapter, and the names of those that are not sent."""

    config: Path
    weights: Path
    files: tuple[LocalFile, ...]
    ignored: tuple[str, ...]


def read_folder(path: Path) -> AdapterFolder:
    """The adapter in directory `path`; raises AdapterRejected with the code the server would give."""
    if not path.is_dir():
        raise _rejected(
            quoted(str(path)).strip("'"), "no directory", f"a directory with {CONFIG_FILE} and {WEIGHTS_FILE}"
        )
    names = sorted(entry.name for entry in path.iterdir())
    _check_names(path, names)
    config, weights = path / CONFIG_FILE, path / WEIGHTS_FILE
    with config.open("rb") as file:
        read_config(file.read(MAX_CONFIG_BYTES + 1))
    with weights.open("rb") as file:
        read_header(file, weights.stat().st_size)
    return AdapterFolder(
        config=config,
        weights=weights,
        files=(_local_file(config), _local_file(weights)),
        ignored=tuple(name for name in names if name not in (CONFIG_FILE, WEIGHTS_FILE)),
    )


def _check_names(path: Path, names: list[str]) -> None:
    shards = sorted(shard.name for shard in path.glob(_SHARDS))
    if shards or _SHARD_INDEX in names:
        found = f"weights in several files: {listed(shards or [_SHARD_INDEX])}"
        raise _rejected(WEIGHTS_FILE, found, "one file", "Save the adapter again with a larger max_shard_size.")
    if not (path / CONFIG_FILE).is_file():
        raise _rejected(CONFIG_FILE, "no such file", "the file PEFT writes beside the weights")
    if (path / WEIGHTS_FILE).is_file():
        return
    if _PICKLE in names:
        raise AdapterRejected(
            "unsupported_format",
            subject=_PICKLE,
            found="a Python pickle",
            allowed=WEIGHTS_FILE,
            advice="A pickle can run code and is never opened here. Load the adapter where you trust it and save it "
            "with save_pretrained(..., safe_serialization=True).",
        )
    raise _rejected(WEIGHTS_FILE, "no such file", "the weights as PEFT saves them")


def _local_file(path: Path) -> LocalFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return LocalFile(path, path.name, file.tell(), digest)


def _rejected(subject: str, found: str, allowed: str, advice: str = "") -> AdapterRejected:
    return AdapterRejected("invalid_file_set", subject=subject, found=found, allowed=allowed, advice=advice)
