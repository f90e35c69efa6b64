"""From what an operator writes as the model to a local Hugging Face directory.

A directory is taken as it is; `package:NAME` is the GGUF file inside an installed Python package, converted once and
kept under the models directory by the file's digest; anything of the form `org/name` is fetched from the hub. Imports
neither torch nor transformers: a conversion runs in two child processes, weights and tokenizer side by side.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from lorikeet_engine.errors import UnsupportedModel

PACKAGE = "package:"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer*"]
DIGEST_CHARS = 16
INCOMPLETE = ".incomplete-"
ABANDONED_AFTER_S = 3600.0
CONVERTER = "lorikeet_engine.models.convert_gguf"


def resolve_model(name: str, models_dir: Path) -> Path:
    """The local directory of the model called `name`.

    Raises:
        UnsupportedModel: there is no such model, or it cannot be converted or fetched; says which.
    """
    if name.startswith(PACKAGE):
        return _from_package(name.removeprefix(PACKAGE), models_dir)
    path = Path(name)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise UnsupportedModel(f"{path} holds no config.json, so it is not a Hugging Face model directory")
        return path.resolve()
    if HUB_ID.fullmatch(name):
        return _from_hub(name)
    raise UnsupportedModel(
        f"model {name!r} is neither a directory, nor package:NAME, nor a hub id of the form org/name"
    )


def _from_hub(name: str) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UnsupportedModel(f"model {name} cannot be fetched from the hub: {error}") from error


def _from_package(package: str, models_dir: Path) -> Path:
    gguf = find_gguf(package)
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = models_dir / f"{package}-{digest[:DIGEST_CHARS]}"
    if not target.is_dir():
        _convert(gguf, target)
    return target.resolve()


def find_gguf(package: str) -> Path:
    """The one GGUF file of an installed distribution, found without importing it."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UnsupportedModel(f"package {package} is not installed: pip install {package}") from error
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if len(found) != 1:
        raise UnsupportedModel(f"package {package} holds {len(found)} GGUF files, expected one")
    return found[0]


def _convert(gguf: Path, target: Path) -> None:
    """Fill a temporary directory beside `target` and rename it, so that a half-written one is never found."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _drop_abandoned(target.parent)
    work = Path(tempfile.mkdtemp(prefix=INCOMPLETE, dir=target.parent))
    try:
        _run_converters(gguf, work)
        work.chmod(0o755)
        _flush(work)
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise somebody else was first, with the same content
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_converters(gguf: Path, out: Path) -> None:
    # Nothing of a conversion comes from a hub; without this the tokenizer class would ask for a template there.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, "-m", CONVERTER, part, str(gguf), str(out)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in ("tokenizer", "weights")
    ]
    failures = []
    for child in children:
        _, errors = child.communicate()
        if child.returncode:
            failures.append((errors.strip().splitlines() or [f"exit status {child.returncode}"])[-1])
    if failures:
        raise UnsupportedModel(f"{gguf.name} cannot be converted: {'; '.join(failures)}")


def _flush(directory: Path) -> None:
    """Bring the files to the disk before the name: after a power cut the name must not stand for empty files."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _drop_abandoned(models_dir: Path) -> None:
    """Remove what killed conversions left; half a gigabyte each."""
    for path in models_dir.glob(f"{INCOMPLETE}*"):
        if path.stat().st_mtime < time.time() - ABANDONED_AFTER_S:
            shutil.rmtree(path, ignore_errors=True)
