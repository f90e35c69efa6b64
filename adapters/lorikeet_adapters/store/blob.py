"""The port to durable storage: immutable blobs under keys that the server builds from ids and digests.

No text of a user ever becomes part of a key; what a key may look like is checked here for every implementation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

MAX_KEY_CHARACTERS: Final = 512
_COMPARE_BYTES: Final = 1 << 20

_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,199})*")


class BlobError(Exception):
    """The store cannot do what was asked."""


class BlobMissing(BlobError):
    """Nothing is stored under the key."""


class BlobConflict(BlobError):
    """Other content is already stored under the key; blobs never change."""


class BlobDamaged(BlobError):
    """What lies under the key is not what was put there, as can be seen without its digest."""


class BlobUnavailable(BlobError):
    """The store does not answer, or refuses us; trying again may help."""


class BlobKeyInvalid(BlobError, ValueError):
    """The key could leave the store or is not portable."""


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """What a listing says of one blob."""

    key: str
    bytes: int
    modified_us: int  # since 1970


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Room in the file system of a store."""

    free_bytes: int
    total_bytes: int


class BlobStore(Protocol):
    """Immutable blobs. A put returns when the content is durable, and is repeated without effect.

    Every method raises BlobKeyInvalid for what is no key, and BlobUnavailable; a local store OSError instead.
    """

    def put_file(self, key: str, path: Path) -> None:
        """Store a copy of the file at `path`; raises BlobConflict."""

    def open(self, key: str) -> BinaryIO:
        """A reader of the content, which can seek; raises BlobMissing, BlobDamaged."""

    def read(self, key: str) -> bytes:
        """The whole content; raises BlobMissing, BlobDamaged."""

    def size(self, key: str) -> int | None:
        """Bytes stored, or None when there is nothing."""

    def delete(self, key: str) -> None:
        """Remove the blob if it is there."""

    def entries(self, prefix: str) -> Iterator[BlobEntry]:
        """All blobs whose keys begin with `prefix`, sorted by key; an empty prefix means all."""

    def free_space(self) -> FreeSpace | None:
        """Room left; None for a service that has no end."""

    def remove_remnants(self, before_us: int) -> int:
        """Delete what writers that ended in the middle left, begun before that time; returns how many."""


def holds_equal(one: BinaryIO, other: BinaryIO) -> bool:
    """Whether both readers have the same content left."""
    while True:
        ours, theirs = one.read(_COMPARE_BYTES), other.read(_COMPARE_BYTES)
        if ours != theirs:
            return False
        if not ours:
            return True


def check_key(key: str) -> str:
    """`key` itself, when it is one; raises BlobKeyInvalid."""
    if len(key) > MAX_KEY_CHARACTERS or not _KEY.fullmatch(key):
        raise BlobKeyInvalid("A storage key is made of letters, digits, '.', '_', '-' and single slashes.")
    return key
