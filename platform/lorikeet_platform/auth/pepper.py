"""The pepper: what makes stored key digests useless without this file. Versioned, so that it can be rotated."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lorikeet_platform.auth.secret_file import read_or_create

FILE_NAME = "pepper.json"
PEPPER_BYTES = 32


@dataclass(frozen=True, slots=True, repr=False)
class Pepper:
    """Live peppers by version; new keys are made under `current`."""

    current: int
    secrets: Mapping[int, bytes]

    def mac(self, key: str, version: int) -> bytes:
        """HMAC-SHA256 of the whole key. An unknown version gives a digest that equals nothing stored."""
        return hmac.new(self.secrets.get(version, b"no such version"), key.encode(), hashlib.sha256).digest()


def load_pepper(data_dir: Path) -> Pepper:
    """The installation's pepper, made at its first start."""
    content = json.loads(read_or_create(data_dir / FILE_NAME, _new_file))
    return Pepper(
        content["current"], {int(version): bytes.fromhex(text) for version, text in content["peppers"].items()}
    )


def _new_file() -> bytes:
    return json.dumps({"current": 1, "peppers": {"1": secrets.token_hex(PEPPER_BYTES)}}).encode()
