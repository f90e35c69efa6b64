"""The administrator's token: a file of mode 0600 that only somebody on this machine can read."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from lorikeet_platform.auth.secret_file import read_or_create

FILE_NAME = "admin.token"


def load_admin_token(data_dir: Path) -> str:
    """The installation's token, made at its first start."""
    return read_or_create(data_dir / FILE_NAME, lambda: f"lka_{secrets.token_urlsafe(32)}\n".encode()).decode().strip()


def is_admin_token(sent: str, expected: str) -> bool:
    """Compared as digests: equal lengths, so time says nothing."""
    return hmac.compare_digest(hashlib.sha256(sent.encode()).digest(), hashlib.sha256(expected.encode()).digest())
