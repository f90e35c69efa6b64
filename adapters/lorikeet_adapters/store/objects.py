"""Blobs in an S3 bucket, or in a service that speaks like one.

A small file is one conditional PUT. A large one goes up in parts under a staging key that no blob's key can mean, and
is then copied to its own by a conditional request; a crash between the two leaves a remnant. The service must honour
`If-None-Match: *` on both, or two writers of different content would not hear of each other.

Credentials are found by obstore in the usual `AWS_…` environment; neither they nor an answer's text, which can hold
the access key's id, ever get into an error of ours.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from uuid import uuid4

from obstore import exceptions
from obstore.store import S3Store

from lorikeet_adapters.store.blob import (
    BlobConflict,
    BlobDamaged,
    BlobEntry,
    BlobMissing,
    BlobUnavailable,
    FreeSpace,
    check_key,
    holds_equal,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

PART_BYTES: Final = 8 << 20
SINGLE_BYTES: Final = 16 << 20  # the most that is held in memory to be put at once
PARALLEL_PARTS: Final = 4
READ_BYTES: Final = 8 << 20
_STAGING: Final = ".staging"
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_REQUEST_TIME: Final = timedelta(seconds=120)
_RETRY_TIME: Final = timedelta(seconds=60)
_N_RETRIES: Final = 5
_PAUSE_S: Final = 0.2
_N_TRIES: Final = 4  # to put a key that others create and delete meanwhile
_REASON: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")


class ObjectBlobStore:
    """A BlobStore over one bucket, or over what lies under one prefix of it."""

    def __init__(self, store: S3Store) -> None:
        self._store = store

    @classmethod
    def connect(cls, *, bucket: str, prefix: str, endpoint: str, region: str, allow_http: bool) -> ObjectBlobStore:
        """Empty text means: as the environment says, or else AWS. Nothing is sent yet."""
        # A service of one's own is addressed by path; AWS by the bucket's host name, unless its certificate has none.
        has_endpoint = bool(endpoint) or any(os.environ.get(name) for name in _ENDPOINT_VARIABLES)
        config: dict[str, str] = {}
        if endpoint:
            config["endpoint"] = endpoint
        if region:
            config["region"] = region
        store = S3Store(
            bucket,
            prefix=prefix or None,
            virtual_hosted_style_request=not has_endpoint and "." not in bucket,
            copy_if_not_exists="multipart",
            disable_bulk_delete=True,  # we delete one at a time, which every service knows
            client_options={"allow_http": allow_http, "timeout": _REQUEST_TIME},
            retry_config={"max_retries": _N_RETRIES, "retry_timeout": _RETRY_TIME},
            **config,  # type: ignore[arg-type]
        )
        return cls(store)

    def put_file(self, key: str, path: Path) -> None:
        check_key(key)
        for attempt in range(_N_TRIES):
            time.sleep(attempt * _PAUSE_S)
            if self._create(key, path):
                return
            try:
                with path.open("rb") as ours, self.open(key) as theirs:
                    if not holds_equal(ours, theirs):
                        raise BlobConflict(f"Other content is stored under {key}.")
                return
            except BlobMissing:
                continue  # deleted since it was found there, or its writer has not finished
        raise BlobUnavailable(f"{key} is created and deleted by others all the time.")

    def open(self, key: str) -> BinaryIO:
        check_key(key)
        with _explained(key):
            meta = self._store.head(key)
        return io.BufferedReader(_ObjectReader(self._store, key, meta["size"], meta["e_tag"]), READ_BYTES)

    def read(self, key: str) -> bytes:
        with self.open(key) as file:
            return file.read()

    def size(self, key: str) -> int | None:
        check_key(key)
        try:
            with _explained(key):
                return int(self._store.head(key)["size"])
        except BlobMissing:
            return None

    def delete(self, key: str) -> None:
        check_key(key)
        with _explained(key):
            self._remove(key)

    def entries(self, prefix: str) -> Iterator[BlobEntry]:
        folder = prefix.rpartition("/")[0]
        if folder:
            check_key(folder)
        return self._entries(folder, prefix)

    def free_space(self) -> FreeSpace | None:
        return None

    def remove_remnants(self, before_us: int) -> int:
        old = [entry.key for entry in self._listed(_STAGING) if entry.modified_us < before_us]
        for key in old:
            with _explained(key):
                self._remove(key)
        return len(old)

    def _create(self, key: str, path: Path) -> bool:
        """Whether the content is now there; False when the key is taken."""
        if path.stat().st_size <= SINGLE_BYTES:
            return self._put_at_once(key, path.read_bytes())
        # Asked first, since nothing need be sent then; the copy asks again.
        return self.size(key) is None and self._put_in_parts(key, path)

    def _put_at_once(self, key: str, content: bytes) -> bool:
        try:
            with _explained(key):
                self._store.put(key, content, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        return True

    def _put_in_parts(self, key: str, path: Path) -> bool:
        staged = f"{_STAGING}/{uuid4().hex}"
        with _explained(key):
            try:
                self._store.put(staged, path, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARALLEL_PARTS)
                self._store.copy(staged, key, overwrite=False)
            except exceptions.AlreadyExistsError:
                return False
            finally:
                self._remove(staged)
        return True

    def _remove(self, key: str) -> None:
        try:
            self._store.delete(key)
        except FileNotFoundError:
            pass

    def _entries(self, folder: str, prefix: str) -> Iterator[BlobEntry]:
        for entry in self._listed(folder):
            if entry.key.startswith(prefix) and not entry.key.startswith("."):
                yield entry

    def _listed(self, folder: str) -> Iterator[BlobEntry]:
        with _explained(folder):
            for page in self._store.list(folder or None):
                for meta in page:
                    yield BlobEntry(meta["path"], meta["size"], _micros(meta["last_modified"]))


class _ObjectReader(io.RawIOBase):
    """Reads by ranges, so that no request lasts as long as its reader; all are of the object that was opened."""

    def __init__(self, store: S3Store, key: str, size: int, e_tag: str | None) -> None:
        super().__init__()
        self._store, self._key, self._size, self._e_tag = store, key, size, e_tag
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, target: Buffer) -> int:
        with memoryview(target).cast("B") as view:
            piece = self._next(len(view))
            view[: len(piece)] = piece
            return len(piece)

    def readall(self) -> bytes:
        pieces = []
        while piece := self._next(READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces)

    def _next(self, n_bytes: int) -> bytes:
        end = min(self._at + min(n_bytes, READ_BYTES), self._size)
        if end <= self._at:
            return b""
        with _explained(self._key):
            found = self._store.get(self._key, options={"range": (self._at, end), "if_match": self._e_tag})
            piece = bytes(found.bytes())
        if len(piece) != end - self._at:
            raise BlobUnavailable(f"{self._key} was answered in part.")
        self._at = end
        return piece


@contextmanager
def _explained(key: str) -> Iterator[None]:
    """Errors of the client as our own; AlreadyExistsError is for the caller."""
    try:
        yield
    except exceptions.AlreadyExistsError:
        raise
    except (exceptions.NotFoundError, FileNotFoundError):
        raise BlobMissing(f"Nothing is stored under {key}.") from None
    except exceptions.PreconditionError:
        raise BlobDamaged(f"{key} was replaced while it was read.") from None
    except exceptions.BaseError as error:
        raise BlobUnavailable(f"The store failed at {key or 'a listing'}: {_reason(error)}.") from None


def _reason(error: exceptions.BaseError) -> str:
    """The service's code and the error's kind."""
    code = _REASON.search(str(error))
    return f"{type(error).__name__} {code[1]}" if code else type(error).__name__


def _micros(at: datetime) -> int:
    return round((at - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1))
