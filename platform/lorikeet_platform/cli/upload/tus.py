"""tus 1.0 as a client speaks it, over the connection and with the time limits of every other command.

It knows one request at a time: no retries, no files, nothing to remember.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from lorikeet_adapters.folder import LocalFile
from lorikeet_platform.cli.api import Api, ApiRefused, ApiUnreachable, Refusal
from lorikeet_platform.cli.console import CommandFailed, ExitCode

PATH: Final = "/v1/uploads"
_VERSION: Final = {"Tus-Resumable": "1.0.0"}
_SLICE: Final = {"Content-Type": "application/offset+octet-stream"}


@dataclass(frozen=True, slots=True)
class BegunUpload:
    """An open upload of the tenant, begun by whichever machine."""

    id: str
    filename: str
    sha256: str
    length: int
    received: int

    def is_of(self, file: LocalFile) -> bool:
        return (self.filename, self.sha256, self.length) == (file.name, file.sha256, file.bytes)


class TusClient:
    """Raises ApiRefused, ApiUnreachable, and CommandFailed for what is no tus server."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def list_begun(self, adapter: str) -> list[BegunUpload]:
        uploads = self._api.get(PATH, adapter=adapter)["data"]
        return [
            BegunUpload(found["id"], found["filename"], found["sha256"], found["length"], found["received"])
            for found in uploads
        ]

    def create(self, adapter: str, file: LocalFile) -> str:
        """The new upload's id."""
        metadata = {"adapter": adapter, "filename": file.name, "sha256": file.sha256}
        headers = {
            "Upload-Length": str(file.bytes),
            "Upload-Metadata": ",".join(f"{name} {_base64(value.encode())}" for name, value in metadata.items()),
        }
        location: str = self._said(self._ask("POST", PATH, headers), "location")
        return location.rstrip("/").rpartition("/")[2]

    def offset(self, upload_id: str) -> int:
        """How many bytes have arrived."""
        return int(self._said(self._ask("HEAD", f"{PATH}/{upload_id}"), "upload-offset"))

    def append(self, upload_id: str, offset: int, content: bytes) -> int:
        """The new offset."""
        checksum = f"sha256 {_base64(hashlib.sha256(content).digest())}"
        headers = {**_SLICE, "Upload-Offset": str(offset), "Upload-Checksum": checksum}
        return int(self._said(self._ask("PATCH", f"{PATH}/{upload_id}", headers, content), "upload-offset"))

    def terminate(self, upload_id: str) -> None:
        self._ask("DELETE", f"{PATH}/{upload_id}")

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> httpx.Headers:
        try:
            response = self._api.http.request(method, path, headers={**_VERSION, **(headers or {})}, content=content)
        except httpx.HTTPError as error:
            raise ApiUnreachable(self._api.url, error) from None
        if response.is_error:
            raise ApiRefused(Refusal.of(response.status_code, response.content, response.headers))
        return response.headers

    def _said(self, headers: httpx.Headers, name: str) -> str:
        value = headers.get(name, "")
        if not value or (name == "upload-offset" and not value.isdecimal()):
            raise CommandFailed(ExitCode.NETWORK, f"{self._api.url} does not speak tus")
        return str(value)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
