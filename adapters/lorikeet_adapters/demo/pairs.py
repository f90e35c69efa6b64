"""The training texts: JSON lines of a prompt and its answer, and the digest that names their exact content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """One question and the answer a style gives to it."""

    prompt: str
    answer: str


def read_pairs(path: Path) -> tuple[Pair, ...]:
    """The pairs of a file in its order; a line with other keys is an error."""
    return tuple(Pair(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
