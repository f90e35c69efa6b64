"""One file to the server by tus: continued if it was begun, tried again while there is hope."""

from __future__ import annotations

from collections.abc import Callable

from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError, TusUploadFailed
from tusclient.uploader import Uploader

from lorikeet_adapters.folder import LocalFile
from lorikeet_platform.cli.api import Api, ApiRefused, Refusal
from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.cli.upload.patience import Patience
from lorikeet_platform.cli.upload.state import UploadState

MIB = 1 << 20
# The server keeps one object a slice and takes 1,024; half of that leaves room for slices cut short.
MAX_SLICES = 512
GONE = frozenset({404, 410})
OFFSET_MOVED = 409
SLICE_DAMAGED = 460


class Transfer:
    """Sends the files of one push; `on_bytes` hears how much of the current file has arrived."""

    def __init__(self, api: Api, *, adapter: str, state: UploadState, patience: Patience) -> None:
        self._api = api
        self._adapter = adapter
        self._state = state
        self._patience = patience

    def send(self, file: LocalFile, on_bytes: Callable[[int], None]) -> str:
        """Upload `file` and return its upload id; raises CommandFailed."""
        before = _stamp(file)
        with file.path.open("rb") as stream:
            while True:
                try:
                    upload_id = self._send_rest(file, stream, on_bytes)
                    break
                except (TusCommunicationError, TusUploadFailed) as error:
                    self._settle_for_retry(file, error)
        if _stamp(file) != before:
            self._state.forget()
            raise CommandFailed(ExitCode.LOCAL_FILES, f"{file.name} changed while it was sent; push again")
        return upload_id

    def _send_rest(self, file: LocalFile, stream: object, on_bytes: Callable[[int], None]) -> str:
        client = TusClient(f"{self._api.url}/v1/uploads", headers=self._api.headers)
        known = self._state.find(file.name)
        uploader: Uploader = client.uploader(
            file_stream=stream,
            url=f"{self._api.url}/v1/uploads/{known}" if known else None,
            chunk_size=max(MIB, -(-file.bytes // MAX_SLICES)),
            metadata={"adapter": self._adapter, "filename": file.name, "sha256": file.sha256},
            upload_checksum=True,
        )
        if not uploader.url:
            uploader.set_url(uploader.create_url())
            self._state.remember(file.name, _id_in(uploader.url))
        on_bytes(uploader.offset)
        while uploader.offset < file.bytes:
            try:
                uploader.upload_chunk()
            except TypeError:  # tuspy, when a success has no Upload-Offset
                raise CommandFailed(ExitCode.NETWORK, f"{self._api.url} does not speak tus") from None
            self._patience.made_progress()
            on_bytes(uploader.offset)
        return _id_in(uploader.url)

    def _settle_for_retry(self, file: LocalFile, error: TusCommunicationError | TusUploadFailed) -> None:
        """Wait before the next try, or raise what makes one pointless."""
        status = error.status_code
        if status is None:
            # tuspy keeps the reason in a chained exception whose text can hold addresses, never the key
            self._patience.wait_after(f"cannot reach {self._api.url}")
            return
        refusal = Refusal.of(status, _bytes(error.response_content), {})
        if status in GONE and self._state.find(file.name):
            self._state.forget()  # expired on the server: begin again
        elif status == OFFSET_MOVED and refusal.code == "offset_conflict":
            self._patience.wait_after("the server has another offset")
        elif status == SLICE_DAMAGED:
            self._patience.wait_after("a slice was damaged on its way; the server kept nothing of it")
        elif refusal.should_retry and refusal.status not in (429, 507):
            self._patience.wait_after(refusal.message, refusal)
        else:
            raise ApiRefused(refusal)


def _stamp(file: LocalFile) -> tuple[int, int]:
    try:
        status = file.path.stat()
    except OSError as error:
        raise CommandFailed(ExitCode.LOCAL_FILES, f"cannot read {file.name}: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns


def _id_in(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def _bytes(content: object) -> bytes:
    return content if isinstance(content, bytes) else b""
