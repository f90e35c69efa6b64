"""What an interrupted push remembers: the ids of its uploads, and nothing else.

One file a push, in the user's state directory, mode 0600; its name is a digest of server, adapter and content, so a
changed file never continues another file's upload.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lorikeet_adapters.folder import LocalFile


class UploadState:
    """Upload ids by file name, kept on disk until the push is sealed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids = _read(path)

    @classmethod
    def of(cls, *, server: str, adapter: str, files: Iterable[LocalFile]) -> UploadState:
        manifest = sorted((file.name, file.bytes, file.sha256) for file in files)
        identity = json.dumps([server, adapter, manifest]).encode()
        return cls(state_dir() / f"{hashlib.sha256(identity).hexdigest()}.json")

    @property
    def upload_ids(self) -> frozenset[str]:
        return frozenset(self._ids.values())

    def find(self, file_name: str) -> str | None:
        return self._ids.get(file_name)

    def remember(self, file_name: str, upload_id: str) -> None:
        self._ids[file_name] = upload_id
        self._write()

    def adopt(self, upload_ids: Mapping[str, str]) -> None:
        """Ids that the server knows of; those remembered here go before."""
        self._ids = {**upload_ids, **self._ids}

    def drop(self, file_name: str) -> None:
        self._ids.pop(file_name, None)
        self._write()

    def forget(self) -> None:
        self._ids.clear()
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"uploads": self._ids}, file)
        draft.replace(self._path)


def state_dir() -> Path:
    """Where this user's programs keep what should outlive them (XDG base directories)."""
    root = os.environ.get("XDG_STATE_HOME")
    return (Path(root) if root else Path.home() / ".local" / "state") / "lorikeet" / "uploads"


def _read(path: Path) -> dict[str, str]:
    try:
        uploads = json.loads(path.read_text(encoding="utf-8"))["uploads"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # gone or damaged: the push starts over, nothing is lost but time
    return {str(k): str(v) for k, v in uploads.items()} if isinstance(uploads, Mapping) else {}
