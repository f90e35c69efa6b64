"""Files that hold a secret: made once with mode 0600, read by every start after that."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path


class SecretFileExposed(Exception):
    """Everybody on this machine can read the file; the secret must be considered known."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is readable by everybody; set its mode to 0600 and replace the secret in it")


def read_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of `path`, written from `make` if it is missing. Two starts at once agree on one content."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(make())
                file.flush()
                os.fsync(file.fileno())
            # link fails when the other start was first, where rename would replace its secret
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    if stat.S_IMODE(path.stat().st_mode) & 0o007:
        raise SecretFileExposed(path)
    return path.read_bytes()
