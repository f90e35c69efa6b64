"""One file to the server: continued if it was begun, tried again while there is hope.

Another machine may be sending the same file into the same upload. Whoever is told that the offset has moved asks where
it stands and goes on from there, so both end well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lorikeet_adapters.folder import LocalFile
from lorikeet_platform.cli.api import ApiRefused, ApiUnreachable
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.cli.upload.patience import Patience
from lorikeet_platform.cli.upload.state import UploadState
from lorikeet_platform.cli.upload.tus import TusClient

SLICE_BYTES = 4 << 20
# The server keeps one object a slice and takes 1,024; half of that leaves room for slices cut short.
MAX_SLICES = 512
GONE = frozenset({404, 410})
MOVED = frozenset({"offset_conflict", "upload_sealed"})  # somebody else sent the same bytes, or all of them
SLICE_DAMAGED = 460
# What another try in a moment does not change: it takes somebody to end an upload, or to make room.
NO_RETRY = frozenset({"too_many_uploads", "storage_full"})


@dataclass(frozen=True, slots=True)
class Stamp:
    """By which a changed file is known without reading it."""

    bytes: int
    changed_ns: int


def stamps_of(folder: Path) -> dict[str, Stamp]:
    """Taken before files are hashed: what changes afterwards is not what was hashed. Nothing for what is not there."""
    with suppress(OSError):
        return {path.name: _stamp(path) for path in folder.iterdir() if path.is_file()}
    return {}


class Transfer:
    """Sends the files of one push; `on_bytes` hears how much of the current file has arrived."""

    def __init__(
        self, tus: TusClient, *, adapter: str, state: UploadState, patience: Patience, stamps: Mapping[str, Stamp]
    ) -> None:
        self._tus, self._adapter, self._state, self._patience = tus, adapter, state, patience
        self._stamps = stamps
        self._furthest = 0

    def send(self, file: LocalFile, on_bytes: Callable[[int], None]) -> str:
        """Upload `file` and return its upload id; raises CommandFailed."""
        self._furthest = 0
        try:
            self._check_unchanged(file)
            with file.path.open("rb") as stream:
                while True:
                    try:
                        upload_id = self._send_rest(file, stream, on_bytes)
                        break
                    except (ApiRefused, ApiUnreachable) as failure:
                        self._settle_for_retry(file, failure)
        except OSError as error:
            raise CommandFailed(ExitCode.LOCAL_FILES, f"cannot read {file.name}: {error.strerror}") from None
        self._check_unchanged(file)
        return upload_id

    def _send_rest(self, file: LocalFile, stream: BinaryIO, on_bytes: Callable[[int], None]) -> str:
        upload_id = self._state.find(file.name)
        if upload_id is None:
            upload_id, offset = self._tus.create(self._adapter, file), 0
            self._state.remember(file.name, upload_id)
        else:
            offset = self._tus.offset(upload_id)
        self._note(offset, on_bytes)
        slice_bytes = max(SLICE_BYTES, -(-file.bytes // MAX_SLICES))
        while offset < file.bytes:
            stream.seek(offset)
            piece = stream.read(min(slice_bytes, file.bytes - offset))
            if len(piece) < min(slice_bytes, file.bytes - offset):
                self._abandon(file)
            offset = self._tus.append(upload_id, offset, piece)
            self._note(offset, on_bytes)
        return upload_id

    def _note(self, offset: int, on_bytes: Callable[[int], None]) -> None:
        """Progress is progress, whoever made it."""
        if offset > self._furthest:
            self._furthest = offset
            self._patience.made_progress()
        on_bytes(offset)

    def _settle_for_retry(self, file: LocalFile, failure: ApiRefused | ApiUnreachable) -> None:
        """Wait before the next try, or raise what makes one pointless."""
        if isinstance(failure, ApiUnreachable):
            self._patience.wait_after(failure.message)
            return
        refusal = failure.refusal
        if refusal.status in GONE and self._state.find(file.name):
            self._state.drop(file.name)
            self._patience.wait_after("the upload has expired or was ended; beginning again")
        elif refusal.code in MOVED:
            self._patience.wait_after("the server has another offset")
        elif refusal.status == SLICE_DAMAGED:
            self._patience.wait_after("a slice was damaged on its way; the server kept nothing of it")
        elif refusal.should_retry and refusal.code not in NO_RETRY:
            self._patience.wait_after(refusal.message, refusal)
        else:
            raise failure

    def _check_unchanged(self, file: LocalFile) -> None:
        if _stamp(file.path) != self._stamps.get(file.name):
            self._abandon(file)

    def _abandon(self, file: LocalFile) -> None:
        """Nobody shall go on with an upload that holds parts of two files."""
        upload_id = self._state.find(file.name)
        if upload_id is not None:
            with suppress(CommandFailed):
                self._tus.terminate(upload_id)
        self._state.forget()
        raise CommandFailed(ExitCode.LOCAL_FILES, f"{file.name} changed while it was sent; push again")


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns)
