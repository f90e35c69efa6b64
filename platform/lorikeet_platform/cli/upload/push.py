"""`lorikeet adapters push` without its console: a PEFT folder becomes a version, ready or refused.

    folder ─ local checks, digests ─▶ tus uploads (resumable) ─▶ seal into a version ─▶ wait for its verdict

The first contact must succeed at once; after that, interruptions are waited out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.folder import AdapterFolder, read_folder
from lorikeet_platform.cli.api import Api, ApiRefused, ApiUnreachable
from lorikeet_platform.cli.console import CommandFailed, ExitCode, say
from lorikeet_platform.cli.upload.patience import Patience
from lorikeet_platform.cli.upload.progress import Progress, progress_for, say_event
from lorikeet_platform.cli.upload.state import UploadState
from lorikeet_platform.cli.upload.transfer import Stamp, Transfer, stamps_of
from lorikeet_platform.cli.upload.tus import BegunUpload, TusClient
from lorikeet_platform.registry.names import is_adapter_name

LONG_POLL_S: Final = 20
FINAL_STATES: Final = frozenset({"ready", "rejected", "failed_internal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """What to push.

    Attributes:
        wait_s: None returns as soon as the version is sealed.
        fresh: end what an interrupted push of the same files has begun, and send everything.
        quiet: leave out all but warnings.
        events: say what happens as lines of JSON.
    """

    folder: Path
    name: str
    alias: str | None = None
    wait_s: float | None = 600.0
    fresh: bool = False
    quiet: bool = False
    events: bool = False

    def note(self, message: str) -> None:
        if self.events:
            say_event("note", message=message)
        else:
            say(message)


def push_adapter(api: Api, request: PushRequest) -> dict[str, Any]:
    """Push and return the version; raises CommandFailed. A rejected version is returned, not raised."""
    if request.alias is not None and not is_adapter_name(request.alias):
        raise CommandFailed(
            ExitCode.USAGE, f"{request.alias!r} is not an alias: a-z 0-9 . _ -, a letter or digit first"
        )
    stamps = stamps_of(request.folder)
    folder = _checked(request.folder)
    for name in () if request.quiet else folder.ignored:
        request.note(f"not sent: {name}")
    tus = TusClient(api)
    begun = tus.list_begun(request.name)  # the key and the address are right, or nothing is sent or remembered
    state = UploadState.of(server=api.url, adapter=request.name, files=folder.files)
    if request.fresh:
        _end(tus, state, folder, begun)
    else:
        state.adopt(_furthest(folder, begun))
    version = _deliver(api, request, _Push(tus, folder, state, stamps))
    state.forget()
    if request.events:
        say_event("sealed", adapter=version["adapter"], version=version["number"], state=version["state"])
    if request.wait_s is None or version["state"] in FINAL_STATES:
        return version
    return wait_for_verdict(api, request, version, request.wait_s)


@dataclass(frozen=True, slots=True)
class _Push:
    """What one run works with."""

    tus: TusClient
    folder: AdapterFolder
    state: UploadState
    stamps: Mapping[str, Stamp]


def _end(tus: TusClient, state: UploadState, folder: AdapterFolder, begun: Sequence[BegunUpload]) -> None:
    """The server forgets them too: they count against the tenant's quotas."""
    matching = {upload.id for upload in begun if any(upload.is_of(file) for file in folder.files)}
    for upload_id in sorted(matching | state.upload_ids):
        try:
            tus.terminate(upload_id)
        except ApiRefused as failure:
            if failure.refusal.status not in (404, 409):  # over, or part of a version
                raise
    state.forget()


def _furthest(folder: AdapterFolder, begun: Sequence[BegunUpload]) -> dict[str, str]:
    """By file, the upload of the same content that has most of it: begun here or on another machine."""
    found: dict[str, str] = {}
    for upload in sorted(begun, key=lambda upload: upload.received):
        for file in folder.files:
            if upload.is_of(file):
                found[file.name] = upload.id
    return found


def _deliver(api: Api, request: PushRequest, push: _Push) -> dict[str, Any]:
    """Upload and seal; once more from the start when somebody ended the uploads meanwhile."""
    try:
        return _seal(api, request, _upload(request, push))
    except ApiRefused as failure:
        if failure.refusal.code != "not_found":
            raise
        request.note("the uploads were ended by somebody else; beginning again")
        push.state.forget()
    return _seal(api, request, _upload(request, push))


def _checked(path: Path) -> AdapterFolder:
    try:
        return read_folder(path)
    except AdapterRejected as error:
        # No adapter there at all is about this machine's files; everything else is about the adapter.
        code = ExitCode.LOCAL_FILES if error.code == "invalid_file_set" else ExitCode.REJECTED
        raise CommandFailed(code, f"{error.code}: {error.message}") from None
    except OSError as error:
        raise CommandFailed(ExitCode.LOCAL_FILES, f"cannot read {error.filename or path}: {error.strerror}") from None


def _upload(request: PushRequest, push: _Push) -> dict[str, str]:
    files = push.folder.files
    total = sum(file.bytes for file in files)
    uploads: dict[str, str] = {}
    sent = 0
    label = f"uploading {request.name}"
    with progress_for(label, total, quiet=request.quiet, events=request.events) as progress:
        transfer = Transfer(
            push.tus, adapter=request.name, state=push.state, patience=Patience(progress.note), stamps=push.stamps
        )
        for file in files:
            uploads[file.name] = transfer.send(file, functools.partial(_show, progress, sent))
            sent += file.bytes
        progress.at(total)
    return uploads


def _show(progress: Progress, n_before: int, n_bytes: int) -> None:
    progress.at(n_before + n_bytes)


def _seal(api: Api, request: PushRequest, uploads: dict[str, str]) -> dict[str, Any]:
    body = {"files": uploads, "alias": request.alias}
    patience = Patience(request.note)
    while True:
        try:
            version: dict[str, Any] = api.post(f"/v1/adapters/{quote(request.name, safe='')}/versions", body)
            return version
        except (ApiUnreachable, ApiRefused) as failure:
            _wait_or_raise(patience, failure)


def wait_for_verdict(api: Api, request: PushRequest, version: dict[str, Any], wait_s: float) -> dict[str, Any]:
    """The version when it is being checked no longer; raises CommandFailed when that takes longer than `wait_s`."""
    path = f"/v1/adapters/{quote(version['adapter'], safe='')}/versions/{version['number']}"
    deadline = time.monotonic() + wait_s
    patience = Patience(request.note)
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
