"""The shape of an API key: `lk_` + 12 base62 + `_` + 32 base62 + 6 base62 of a CRC32 over everything before it.

Only `[0-9A-Za-z_]`, so that a double click selects it; prefix and checksum let a secret scanner confirm a leak offline.
No database, no pepper.
"""

from __future__ import annotations

import re
import secrets
import zlib
from dataclasses import dataclass

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PUBLIC_ID_LENGTH = 12
SECRET_LENGTH = 32
CHECKSUM_LENGTH = 6
HINT_LENGTH = 4
KEY_PATTERN = "lk_[0-9A-Za-z]{12}_[0-9A-Za-z]{38}"  # published, for secret scanners

_KEY = re.compile(KEY_PATTERN)


@dataclass(frozen=True, slots=True, repr=False)
class NewKey:
    """A key just made; the text is shown once and never stored."""

    text: str

    @property
    def public_id(self) -> str:
        return public_id_of(self.text)

    @property
    def hint(self) -> str:
        return self.text[:-CHECKSUM_LENGTH][-HINT_LENGTH:]


def new_key() -> NewKey:
    body = f"lk_{_random(PUBLIC_ID_LENGTH)}_{_random(SECRET_LENGTH)}"
    return NewKey(body + checksum(body))


def is_well_formed(key: str) -> bool:
    """Full match and checksum; True says nothing about whether the key exists."""
    return _KEY.fullmatch(key) is not None and checksum(key[:-CHECKSUM_LENGTH]) == key[-CHECKSUM_LENGTH:]


def public_id_of(key: str) -> str:
    return key[3 : 3 + PUBLIC_ID_LENGTH]


def checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode("ascii")), ""
    for _ in range(CHECKSUM_LENGTH):
        value, digit = divmod(value, 62)
        digits = BASE62[digit] + digits
    return digits


def _random(n_characters: int) -> str:
    return "".join(secrets.choice(BASE62) for _ in range(n_characters))
