"""Identifiers made by the server: UUIDv7 as `prefix_` and 26 base32 characters.

Sortable by creation time, safe in URLs, file names and object keys. Nothing a caller chose is ever part of one.
"""

from __future__ import annotations

import secrets
import time
from typing import Literal

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32: no i, l, o, u
ID_LENGTH = 32  # column width: the longest prefix, an underscore, 26 characters

Prefix = Literal["ten", "key", "adp", "ver", "upl", "sli", "job", "req", "ses", "del", "evt", "gwy", "cho"]


def new_id(prefix: Prefix) -> str:
    return f"{prefix}_{_base32(_uuid7(time.time_ns() // 1_000_000))}"


def _uuid7(unix_ms: int) -> int:
    """48 bits of milliseconds, version, 12 random bits, variant, 62 random bits (RFC 9562)."""
    random = secrets.randbits(74)
    return (unix_ms & (1 << 48) - 1) << 80 | 7 << 76 | (random >> 62) << 64 | 0b10 << 62 | random & (1 << 62) - 1


def _base32(value: int) -> str:
    return "".join(ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
