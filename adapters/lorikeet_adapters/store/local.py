"""Blobs in a directory of this machine.

A blob becomes visible under its key in one step, after its bytes are on the disk, and is then read-only. A crash
leaves at most a temporary file, whose name begins with a dot and which no key can mean.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

from lorikeet_adapters.store.blob import (
    BlobConflict,
    BlobDamaged,
    BlobEntry,
    BlobKeyInvalid,
    BlobMissing,
    BlobUnavailable,
    FreeSpace,
    check_key,
    holds_equal,
)

_COPY_BYTES: Final = 1 << 20
_MODE: Final = 0o440
# Not blocking: a pipe in a file's place is refused, not waited for.
_READING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# What a file system without hard links answers.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_N_TRIES: Final = 4  # to put a key that others create and delete meanwhile


class LocalBlobStore:
    """A BlobStore under `root`, which is created when it is missing."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()

    def put_file(self, key: str, path: Path) -> None:
        with path.open("rb") as source:
            self._put(key, lambda target: shutil.copyfileobj(source, target, _COPY_BYTES))

    def open(self, key: str) -> BinaryIO:
        return os.fdopen(self._open_descriptor(key), "rb")

    def read(self, key: str) -> bytes:
        with self.open(key) as file:
            return file.read()

    def size(self, key: str) -> int | None:
        try:
            with self.open(key) as file:
                return os.fstat(file.fileno()).st_size
        except BlobMissing:
            return None

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        _sync_directory(path.parent)

    def entries(self, prefix: str) -> Iterator[BlobEntry]:
        start = self._root
        if "/" in prefix:
            start = self._path(prefix.rpartition("/")[0])
        found = []
        for folder, _, names in os.walk(start):
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix) and not name.startswith("."):
                    found += _entry(key, path)
        return iter(sorted(found, key=lambda entry: entry.key))

    def free_space(self) -> FreeSpace | None:
        usage = shutil.disk_usage(self._root)
        return FreeSpace(usage.free, usage.total)

    def remove_remnants(self, before_us: int) -> int:
        n_removed = 0
        for folder, _, names in os.walk(self._root):
            for path in (Path(folder, name) for name in names if name.startswith(".")):
                with suppress(FileNotFoundError):
                    if path.lstat().st_mtime_ns // 1_000 < before_us:
                        path.unlink()
                        n_removed += 1
        return n_removed

    def _put(self, key: str, write: Callable[[BinaryIO], None]) -> None:
        path = self._path(key)
        self._make_folders(path.parent)
        temporary = path.parent / f".{uuid4().hex}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            self._publish(key, temporary, path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        # Also for a blob that was already there: whoever wrote it may not have come this far.
        _sync_directory(path.parent)

    def _publish(self, key: str, temporary: Path, path: Path) -> None:
        """Give the finished file its name. Another may delete what was found there before it can be compared."""
        for _ in range(_N_TRIES):
            try:
                return self._link(key, temporary, path)
            except BlobMissing:
                continue
        raise BlobUnavailable(f"{key} is created and deleted by others all the time.")

    def _link(self, key: str, temporary: Path, path: Path) -> None:
        """A link never replaces what is there, a rename would. Raises BlobMissing when it is gone again."""
        try:
            os.link(temporary, path, follow_symlinks=False)
        except FileExistsError:
            self._check_equal(key, temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if path.exists():
                self._check_equal(key, temporary)
            else:
                temporary.rename(path)

    def _check_equal(self, key: str, temporary: Path) -> None:
        with temporary.open("rb") as ours, self.open(key) as theirs:
            if not holds_equal(ours, theirs):
                raise BlobConflict(f"Other content is stored under {key}.")

    def _open_descriptor(self, key: str) -> int:
        try:
            descriptor = os.open(self._path(key), _READING)
        except (FileNotFoundError, NotADirectoryError):
            raise BlobMissing(f"Nothing is stored under {key}.") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise BlobDamaged(f"{key} has become a link.") from None
            raise
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(mode):  # of other keys
            raise BlobMissing(f"Nothing is stored under {key}.")
        raise BlobDamaged(f"{key} is no file.")

    def _path(self, key: str) -> Path:
        """Where `key` lies; a folder that has become a link out of the root is refused like a bad key."""
        path = self._root / check_key(key)
        if not path.parent.resolve().is_relative_to(self._root):
            raise BlobKeyInvalid("The key leads out of the store.")
        return path

    def _make_folders(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for created in reversed(missing):
            created.mkdir(exist_ok=True)
            _sync_directory(created.parent)


def _entry(key: str, path: Path) -> list[BlobEntry]:
    """Nothing for what is no file or has just been deleted."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return []
    if not stat.S_ISREG(status.st_mode):
        return []
    return [BlobEntry(key, status.st_size, status.st_mtime_ns // 1_000)]


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
