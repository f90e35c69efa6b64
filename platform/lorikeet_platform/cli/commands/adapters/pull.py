"""`lorikeet adapters pull`: a version's files, as they were uploaded, into a folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from lorikeet_platform.cli.commands.adapters.references import adapter_path, parse_version
from lorikeet_platform.cli.commands.options import DEFAULT_API_URL, ApiUrl, AsJson
from lorikeet_platform.cli.console import CommandFailed, ExitCode, print_json, say

if TYPE_CHECKING:
    from lorikeet_platform.cli.api import Api
    from lorikeet_platform.cli.upload.progress import Progress


def pull(
    model: Annotated[str, typer.Argument(metavar="NAME[:NUMBER|@ALIAS]", help="NAME alone means NAME@live.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go; it is made when it is missing.")],
    api_url: ApiUrl = DEFAULT_API_URL,
    as_json: AsJson = False,
) -> None:
    """Download a version's files. A file that is there already stays if it is the same, and is never overwritten.

    Exit status: 0 done, 2 usage or not found, 3 key refused, 4 network, 5 another file is in the way,
    10 what came has another digest.
    """
    from lorikeet_platform.cli.api import tenant_api
    from lorikeet_platform.cli.upload.progress import progress_for

    with tenant_api(api_url) as api:
        name, number = _resolve(api, model)
        path = f"{adapter_path(name)}/versions/{number}/files"
        files = api.get(path)["data"]
        missing = [file for file in files if not _is_there(folder, file)]
        folder.mkdir(parents=True, exist_ok=True)
        total, arrived = sum(file["bytes"] for file in missing), 0
        with progress_for(f"downloading {name}:{number}", total) as progress:
            for file in missing:
                _fetch(api, f"{path}/{quote(file['filename'], safe='')}", file, folder, progress, arrived)
                arrived += file["bytes"]
    if as_json:
        print_json({"adapter": name, "number": number, "files": files})
    else:
        say(f"{name}:{number} is in {folder}.")


def _resolve(api: Api, model: str) -> tuple[str, int]:
    if ":" in model:
        reference = parse_version(model)
        assert reference.number is not None
        return reference.adapter, reference.number
    name, _, alias = model.partition("@")
    targets = api.get(f"{adapter_path(name)}/aliases/{quote(alias or 'live', safe='')}")["targets"]
    if len(targets) > 1:
        numbers = " or ".join(f"{name}:{target['version']}" for target in targets)
        raise CommandFailed(ExitCode.USAGE, f"{model} points at several versions; say which: {numbers}")
    return name, targets[0]["version"]


def _is_there(folder: Path, file: dict[str, Any]) -> bool:
    path = folder / _plain(file["filename"])
    if not path.exists():
        return False
    with path.open("rb") as existing:
        if hashlib.file_digest(existing, "sha256").hexdigest() == file["sha256"]:
            return True
    raise CommandFailed(ExitCode.LOCAL_FILES, f"{path} is another file; it is left alone")


def _fetch(api: Api, path: str, file: dict[str, Any], folder: Path, progress: Progress, before: int) -> None:
    """Under its name only when it is whole and has its digest."""
    target = folder / _plain(file["filename"])
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    digest, n_bytes = hashlib.sha256(), 0
    try:
        with partial.open("xb") as out, api.download(path) as pieces:
            for piece in pieces:
                digest.update(piece)
                out.write(piece)
                n_bytes += len(piece)
                progress.at(before + n_bytes)
        if digest.hexdigest() != file["sha256"]:
            raise CommandFailed(ExitCode.INTEGRITY, f"{target.name}: what came has another digest than the version")
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _plain(filename: str) -> str:
    """A server's word for a file's name must not lead out of the folder."""
    from lorikeet_adapters.files import is_adapter_file

    if not is_adapter_file(filename):
        raise CommandFailed(ExitCode.INTEGRITY, "the server names a file that is no part of an adapter")
    return filename
