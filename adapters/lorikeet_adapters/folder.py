"""A PEFT output directory on the user's machine, before anything is sent.

Finds the files that are uploaded, runs the cheap checks (configuration, index and headers, the same code as the
server), and lists what stays behind. It reads no weights but to hash them, evaluates no expression of the
configuration, and imports neither numpy nor torch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lorikeet_adapters.config.settings import MAX_CONFIG_BYTES, read_config
from lorikeet_adapters.errors import AdapterRejected, quoted
from lorikeet_adapters.files import CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE, is_adapter_file, weight_files
from lorikeet_adapters.weights import open_files, read_index_bytes, read_tensors

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
    """The files of one adapter, and the names of those that are not sent; `index` is there with shards only."""

    config: Path
    weights: tuple[Path, ...]
    index: Path | None
    files: tuple[LocalFile, ...]
    ignored: tuple[str, ...]


def read_folder(path: Path) -> AdapterFolder:
    """The adapter in directory `path`; raises AdapterRejected with the code the server would give."""
    if not path.is_dir():
        raise AdapterRejected(
            "invalid_file_set",
            subject=quoted(str(path)).strip("'"),
            found="no directory",
            allowed=f"a directory with {CONFIG_FILE} and {WEIGHTS_FILE}",
        )
    entries = sorted(path.iterdir())
    names = {entry.name for entry in entries if is_adapter_file(entry.name) and entry.is_file()}
    _check_no_pickle(path, names)
    config = path / CONFIG_FILE
    weights = tuple(path / name for name in weight_files(names))
    index = path / INDEX_FILE if INDEX_FILE in names else None
    with config.open("rb") as file:
        read_config(file.read(MAX_CONFIG_BYTES + 1))
    with open_files(weights) as files:
        read_tensors(files, None if index is None else read_index_bytes(index))
    return AdapterFolder(
        config=config,
        weights=weights,
        index=index,
        files=tuple(_local_file(file) for file in (config, *weights, *([] if index is None else [index]))),
        ignored=tuple(entry.name for entry in entries if entry.name not in names),
    )


def _check_no_pickle(path: Path, names: set[str]) -> None:
    if names - {CONFIG_FILE} or not (path / _PICKLE).is_file():
        return
    raise AdapterRejected(
        "unsupported_format",
        subject=_PICKLE,
        found="a Python pickle",
        allowed=WEIGHTS_FILE,
        advice="A pickle can run code and is never opened here. Convert it: `lorikeet adapters convert` reads it in a "
        "process without rights.",
    )


def _local_file(path: Path) -> LocalFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return LocalFile(path, path.name, file.tell(), digest)
