"""tus 1.0 as headers and values: what may be sent, what is answered. No database, no store.

Extensions: creation, checksum, expiration, termination. The specification asks for SHA-1 slice checksums besides
SHA-256; the file's own digest, which decides, is SHA-256 and comes in the metadata.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from email.utils import formatdate

from fastapi import Request

from lorikeet_adapters.files import is_adapter_file
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.errors import PlatformError, quoted

VERSION = "1.0.0"
EXTENSIONS = "creation,checksum,expiration,termination"
ALGORITHMS = {"sha1": 20, "sha256": 32}
SLICE_TYPE = "application/offset+octet-stream"
MAX_METADATA = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class UploadMetadata:
    adapter: str
    filename: str
    sha256: str


@dataclass(frozen=True, slots=True)
class SliceChecksum:
    """What the client says about one PATCH body."""

    algorithm: str
    digest: bytes

    def matches(self, sha1: bytes, sha256: bytes) -> bool:
        return hmac.compare_digest({"sha1": sha1, "sha256": sha256}[self.algorithm], self.digest)


class SliceHasher:
    """Both digests of a slice while it streams."""

    def __init__(self) -> None:
        self._sha1 = hashlib.sha1(usedforsecurity=False)
        self._sha256 = hashlib.sha256()

    def update(self, chunk: bytes) -> None:
        self._sha1.update(chunk)
        self._sha256.update(chunk)

    def matches(self, checksum: SliceChecksum) -> bool:
        return checksum.matches(self._sha1.digest(), self._sha256.digest())

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


def check_version(request: Request) -> None:
    if request.headers.get("tus-resumable") != VERSION:
        raise PlatformError("unsupported_tus_version", headers={"tus-version": VERSION})


def read_length(request: Request, max_bytes: int) -> int:
    length = _number(request, "upload-length")
    if length == 0:
        raise PlatformError("invalid_value", "Upload-Length must be at least 1.", "Upload-Length")
    if length > max_bytes:
        raise PlatformError("adapter_too_large", f"A file may have at most {max_bytes} bytes.", "Upload-Length")
    return length


def read_offset(request: Request) -> int:
    return _number(request, "upload-offset")


def read_metadata(request: Request) -> UploadMetadata:
    """`adapter`, `filename` and `sha256`, each once and nothing else."""
    header = request.headers.get("upload-metadata", "")
    if len(header) > MAX_METADATA:
        raise _bad_metadata("it is too long")
    found: dict[str, str] = {}
    for pair in header.split(",") if header else []:
        name, _, encoded = pair.strip().partition(" ")
        if name in found:
            raise _bad_metadata(f"{quoted(name)} is given twice")
        found[name] = _decoded(name, encoded)
    wanted = {"adapter", "filename", "sha256"}
    if missing := wanted - found.keys():
        raise PlatformError(
            "missing_parameter", f"Upload-Metadata needs {min(missing)}.", f"Upload-Metadata.{min(missing)}"
        )
    if unknown := found.keys() - wanted:
        name = min(unknown)
        raise PlatformError("unknown_parameter", f"Upload-Metadata has an unknown {quoted(name)}.", "Upload-Metadata")
    if not is_adapter_file(found["filename"]):
        raise PlatformError(
            "invalid_value", "The file must be one that PEFT writes for an adapter.", "Upload-Metadata.filename"
        )
    if not _SHA256.fullmatch(found["sha256"]):
        raise PlatformError("invalid_value", "sha256 must be 64 lower-case hex digits.", "Upload-Metadata.sha256")
    return UploadMetadata(**found)


def read_checksum(request: Request) -> SliceChecksum | None:
    header = request.headers.get("upload-checksum")
    if header is None:
        return None
    algorithm, _, encoded = header.partition(" ")
    try:
        digest = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != ALGORITHMS.get(algorithm):
        raise PlatformError(
            "invalid_value",
            f"Upload-Checksum must be one of {', '.join(ALGORITHMS)} and a base64 digest.",
            "Upload-Checksum",
        )
    return SliceChecksum(algorithm, digest)


def http_date(at_us: int) -> str:
    return formatdate(unix_seconds(at_us), usegmt=True)


def _number(request: Request, name: str) -> int:
    text = request.headers.get(name)
    param = name.title()
    if text is None:
        raise PlatformError("missing_parameter", f"{param} is required.", param)
    if not _NUMBER.fullmatch(text):
        raise PlatformError("invalid_value", f"{param} must be a number of bytes.", param)
    return int(text)


def _decoded(name: str, encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise _bad_metadata(f"{quoted(name)} is not base64 of UTF-8") from None


def _bad_metadata(reason: str) -> PlatformError:
    return PlatformError("invalid_value", f"Upload-Metadata cannot be read: {reason}.", "Upload-Metadata")
