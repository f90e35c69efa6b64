"""`lorikeet adapters push` without its console: a PEFT folder becomes a version, ready or refused.

    folder ─ local checks, digests ─▶ tus uploads (resumable) ─▶ seal into a version ─▶ wait for its verdict

The first contact must succeed at once; after that, interruptions are waited out.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.folder import AdapterFolder, read_folder
from lorikeet_platform.cli.api import Api, ApiRefused, ApiUnreachable
from lorikeet_platform.cli.console import CommandFailed, ExitCode, say
from lorikeet_platform.cli.upload.patience import Patience
from lorikeet_platform.cli.upload.progress import Progress, progress_for
from lorikeet_platform.cli.upload.state import UploadState
from lorikeet_platform.cli.upload.transfer import Transfer

LONG_POLL_S: Final = 20
FINAL_STATES: Final = frozenset({"ready", "rejected", "failed_internal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """What to push. `wait_s` None returns as soon as the version is sealed; `quiet` leaves out all but warnings."""

    folder: Path
    name: str
    alias: str | None = None
    wait_s: float | None = 600.0
    fresh: bool = False
    quiet: bool = False


def push_adapter(api: Api, request: PushRequest) -> dict[str, Any]:
    """Push and return the version; raises CommandFailed. A rejected version is returned, not raised."""
    folder = _checked(request.folder)
    for name in () if request.quiet else folder.ignored:
        say(f"not sent: {name}")
    api.get("/v1/adapters")  # the key and the address are right, or nothing is hashed, sent or remembered
    state = UploadState.of(server=api.url, adapter=request.name, files=folder.files)
    if request.fresh:
        state.forget()
    uploads = _upload(api, request, folder, state)
    version = _seal(api, request, uploads)
    state.forget()
    if request.wait_s is None or version["state"] in FINAL_STATES:
        return version
    return _wait(api, version, request.wait_s)


def _checked(path: Path) -> AdapterFolder:
    try:
        return read_folder(path)
    except AdapterRejected as error:
        # No adapter there at all is about this machine's files; everything else is about the adapter.
        code = ExitCode.LOCAL_FILES if error.code == "invalid_file_set" else ExitCode.REJECTED
        raise CommandFailed(code, f"{error.code}: {error.message}") from None
    except OSError as error:
        raise CommandFailed(ExitCode.LOCAL_FILES, f"cannot read {error.filename or path}: {error.strerror}") from None


def _upload(api: Api, request: PushRequest, folder: AdapterFolder, state: UploadState) -> dict[str, str]:
    total = sum(file.bytes for file in folder.files)
    uploads: dict[str, str] = {}
    sent = 0
    with progress_for(f"uploading {request.name}", total, quiet=request.quiet) as progress:
        transfer = Transfer(api, adapter=request.name, state=state, patience=Patience(progress.note))
        for file in folder.files:
            uploads[file.name] = transfer.send(file, functools.partial(_show, progress, sent))
            sent += file.bytes
        progress.at(total)
    return uploads


def _show(progress: Progress, n_before: int, n_bytes: int) -> None:
    progress.at(n_before + n_bytes)


def _seal(api: Api, request: PushRequest, uploads: dict[str, str]) -> dict[str, Any]:
    body = {"files": uploads, "alias": request.alias}
    patience = Patience(say)
    while True:
        try:
            version: dict[str, Any] = api.post(f"/v1/adapters/{quote(request.name, safe='')}/versions", body)
            return version
        except (ApiUnreachable, ApiRefused) as failure:
            _wait_or_raise(patience, failure)


def _wait(api: Api, version: dict[str, Any], wait_s: float) -> dict[str, Any]:
    path = f"/v1/adapters/{quote(version['adapter'], safe='')}/versions/{version['number']}"
    deadline = time.monotonic() + wait_s
    patience = Patience(say)
    while version["state"] not in FINAL_STATES:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            label = f"{version['adapter']}:{version['number']}"
            raise CommandFailed(ExitCode.WAIT_TIMEOUT, f"{label} is still being checked after {wait_s:.0f} s")
        try:
            version = api.get(path, wait=max(1, min(LONG_POLL_S, int(left_s))))
            patience.made_progress()
        except (ApiUnreachable, ApiRefused) as failure:
            _wait_or_raise(patience, failure)
    return version


def _wait_or_raise(patience: Patience, failure: ApiUnreachable | ApiRefused) -> None:
    refusal = failure.refusal if isinstance(failure, ApiRefused) else None
    if refusal is not None and not refusal.should_retry:
        raise failure
    patience.wait_after(failure.message, refusal)
