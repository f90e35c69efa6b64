"""Short ways to put into a store and to list it."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile

from lorikeet_adapters.store.blob import BlobStore


def put(store: BlobStore, key: str, data: bytes) -> None:
    """Put `data` from a file, as every caller does."""
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        store.put_file(key, Path(file.name))


def keys(store: BlobStore, prefix: str = "") -> list[str]:
    return [entry.key for entry in store.entries(prefix)]
