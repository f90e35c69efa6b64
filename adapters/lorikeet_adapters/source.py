"""From a digest to the bytes that a store holds under it, for the engine.

Owns the key under which a worker keeps a normalised file. Whether the bytes are those that were validated is not
looked at here but once, where they are taken apart (`digest.read_normalised_file`), which nothing gets around.
"""

from __future__ import annotations

import re
from typing import Final

from lorikeet_adapters.errors import AdapterImageDamaged, AdapterImageMissing
from lorikeet_adapters.store.blob import BlobDamaged, BlobKeyInvalid, BlobMissing, BlobStore, check_key

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def image_key(tenant: str, digest: str) -> str:
    """The key of a tenant's normalised file; tenants never share one, even for equal content."""
    if not _DIGEST.fullmatch(digest) or "/" in tenant:
        raise ValueError("An adapter is stored under a tenant id and 64 hexadecimal digits.")
    return check_key(f"images/{tenant}/{digest}")


class AdapterSource:
    """Reads normalised files out of a store."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def read_normalised(self, tenant: str, digest: str) -> bytes:
        """The file as it lies in the store.

        Raises:
            AdapterImageMissing: there is none.
            AdapterImageDamaged: something else lies in its place. And what the store raises when it fails.
        """
        try:
            key = image_key(tenant, digest)
        except ValueError:
            raise AdapterImageMissing(digest) from None
        try:
            # Read, not mapped: a mapped file that somebody cuts short ends the process.
            return self._store.read(key)
        except BlobMissing:
            raise AdapterImageMissing(digest) from None
        except (BlobDamaged, BlobKeyInvalid):
            raise AdapterImageDamaged(digest, "something else has taken its place") from None
