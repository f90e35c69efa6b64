"""From an address to a store. Gateway, worker and engine open the same one by the same address."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_adapters.store.local import LocalBlobStore

S3: Final = "s3://"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where blobs are kept; it holds no credential, which a process finds in its environment.

    Attributes:
        url: a directory's path, or `s3://bucket` or `s3://bucket/prefix`.
        endpoint: address of an S3 service; empty = AWS, or what the environment says.
        region: empty = what the environment says.
        allow_http: an endpoint without TLS is meant.
    """

    url: str
    endpoint: str = ""
    region: str = ""
    allow_http: bool = False


def open_store(address: StoreAddress) -> BlobStore:
    """The store at `address`; a directory is created when it is missing, a bucket is not asked yet."""
    if not address.url.startswith(S3):
        return LocalBlobStore(Path(address.url))
    # Imported where a bucket is used: an engine beside its directory needs no S3 client, and may have none.
    objects = import_module("lorikeet_adapters.store.objects")
    bucket, _, prefix = address.url.removeprefix(S3).partition("/")
    store = objects.ObjectBlobStore.connect(
        bucket=bucket,
        prefix=prefix,
        endpoint=address.endpoint,
        region=address.region,
        allow_http=address.allow_http,
    )
    return cast(BlobStore, store)
