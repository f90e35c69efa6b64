"""One PATCH body to one durable store object: streamed, hashed on the way, never held in memory.

What arrived before a connection broke is kept, unless the client gave a checksum for the whole slice.
"""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO

from starlette.requests import ClientDisconnect

from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Upload
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.ids import new_id
from lorikeet_platform.limits.effective import Limit
from lorikeet_platform.registry.acting import changing
from lorikeet_platform.registry.reach import check_reach_of_name
from lorikeet_platform.registry.uploads import service
from lorikeet_platform.registry.uploads.leftovers import SLICE_PREFIX
from lorikeet_platform.registry.uploads.protocol import SliceChecksum, SliceHasher
from lorikeet_platform.registry.uploads.quotas import too_many_uploads
from lorikeet_platform.registry.uploads.service import StoredSlice, slice_key

WRITE_BYTES = 1 << 20
# A body that trickles holds a file and a connection; after a while it must have come at this rate on average.
SLOWEST_BYTES_PER_S = 1 << 10
SLOW_START_S = 30.0
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class ReceivingSlots:
    """How many bodies of each tenant this process is receiving."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @contextmanager
    def hold(self, tenant_id: str, limit: Limit) -> Iterator[None]:
        """Raises PlatformError(too_many_uploads)."""
        if self._held[tenant_id] >= limit.value:
            raise too_many_uploads(limit, f"At most {limit.value} bodies may be sent at once")
        self._held[tenant_id] += 1
        try:
            yield
        finally:
            self._held[tenant_id] -= 1
            if not self._held[tenant_id]:
                del self._held[tenant_id]


@dataclass(slots=True)
class ReceivedSlice:
    """A slice in a temporary file."""

    file: IO[bytes]
    path: Path
    hasher: SliceHasher
    n_bytes: int = 0

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk)
        self.hasher.update(chunk)
        self.n_bytes += len(chunk)


async def receive_slice(
    context: PlatformContext,
    actor: Actor,
    upload: Upload,
    body: AsyncIterator[bytes],
    checksum: SliceChecksum | None,
) -> int:
    """Append the body to `upload`; returns the new offset.

    Raises:
        PlatformError: request_too_large, slice_checksum_mismatch, request_timeout, storage_full, and what
            `service.add_slice` and `changing` raise. After any of them nothing of the body is kept, but see the
            module's text.
        ClientDisconnect: the connection broke.
    """
    with _storage_errors(), tempfile.NamedTemporaryFile(dir=_folder(context), prefix=SLICE_PREFIX) as file:
        received = ReceivedSlice(file.file, Path(file.name), SliceHasher())
        interruption = await _copy(body, received, limit=upload.length - upload.received)
        if checksum is not None:
            if interruption is not None:
                raise interruption
            if not received.hasher.matches(checksum):
                raise PlatformError("slice_checksum_mismatch")
        offset = upload.received
        if received.n_bytes:
            offset = await asyncio.to_thread(_record, context, actor, upload, received)
        if interruption is not None:
            raise interruption
        return offset


async def _copy(body: AsyncIterator[bytes], received: ReceivedSlice, *, limit: int) -> Exception | None:
    """Returns what broke the body off, if something did."""
    waiting = bytearray()
    interruption: Exception | None = None
    began_at = monotonic()
    try:
        async for chunk in body:
            waiting += chunk
            if received.n_bytes + len(waiting) > limit:
                raise PlatformError("request_too_large", "The slice goes past the end of the file.")
            _check_rate(received.n_bytes + len(waiting), monotonic() - began_at)
            if len(waiting) >= WRITE_BYTES:
                await asyncio.to_thread(received.write, bytes(waiting))
                waiting.clear()
    except ClientDisconnect as error:
        interruption = error
    except PlatformError as error:
        if error.code != "request_timeout":
            raise
        interruption = error
    await asyncio.to_thread(received.write, bytes(waiting))
    return interruption


def _check_rate(n_bytes: int, seconds: float) -> None:
    if seconds > SLOW_START_S and n_bytes < seconds * SLOWEST_BYTES_PER_S:
        raise PlatformError("request_timeout", headers={"connection": "close"})


def _record(context: PlatformContext, actor: Actor, upload: Upload, received: ReceivedSlice) -> int:
    """Blob first, row second; a blob without its row is deleted again."""
    received.file.flush()
    piece = StoredSlice(new_id("sli"), upload.received, received.n_bytes, received.hasher.sha256)
    key = slice_key(upload.tenant_id, upload.id, piece.slice_id)
    context.store.put_file(key, received.path)
    try:
        with changing(context, actor) as work:
            check_reach_of_name(work, upload.tenant_id, upload.adapter_name)  # it may have been limited meanwhile
            moved = service.add_slice(work, upload, piece, limits=context.settings.limits, now=context.clock())
            return moved.received
    except Exception:
        context.store.delete(key)
        raise


def _folder(context: PlatformContext) -> Path:
    folder = context.settings.temporary_dir
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise PlatformError("storage_full") from error
        raise
