"""From a digest to the bytes that were validated, for the engine.

Owns the key under which a worker keeps a normalised file. Every read is checked against the digest, so a damaged or
exchanged file is noticed before it reaches the device.
"""

from __future__ import annotations

import hashlib
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
        """The verified file.

        Raises:
            AdapterImageMissing, AdapterImageDamaged: and what the store raises when it fails.
        """
        try:
            key = image_key(tenant, digest)
        except ValueError:
            raise AdapterImageMissing(digest) from None
        try:
            # Read, not mapped: a mapped file that somebody cuts short ends the process.
            data = self._store.read(key)
        except BlobMissing:
            raise AdapterImageMissing(digest) from None
        except (BlobDamaged, BlobKeyInvalid):
            raise AdapterImageDamaged(digest, "something else has taken its place") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise AdapterImageDamaged(digest, "its content has another digest")
        return data
