"""A version's files, as they were uploaded: transport only."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry import catalogue
from lorikeet_platform.registry.acting import Acting, check_still_reads, reading
from lorikeet_platform.registry.files import FileDamaged, check_kept, open_file, pick_file, report_damage
from lorikeet_platform.registry.routes.parameters import VersionNumber
from lorikeet_platform.registry.schemas import VersionFile, VersionFileList

BYTES = "application/octet-stream"
LOOK_EVERY_S = 1.0  # whether a key still is one, while it downloads


class DownloadCut(Exception):
    """Who downloads may do so no longer."""


def add_to(router: APIRouter) -> None:
    router.get("/{name}/versions/{number}/files", operation_id="list_files", tags=["versions"])(list_files)
    router.get(
        "/{name}/versions/{number}/files/{filename}",
        operation_id="download_file",
        response_class=StreamingResponse,
        responses={200: {"content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}},
        tags=["versions"],
    )(download_file)


@needs("adapters:read")
def list_files(name: str, number: VersionNumber, actor: Acting, request: Request) -> VersionFileList:
    with reading(get_context(request), actor) as work:
        version = catalogue.get_version(work, actor.tenant_id, name, number)
        files = catalogue.list_files(work, version)
    return VersionFileList(
        data=[VersionFile(filename=file.filename, bytes=file.bytes, sha256=file.sha256) for file in files]
    )


@needs("adapters:read")
def download_file(
    name: str, number: VersionNumber, filename: str, actor: Acting, request: Request
) -> StreamingResponse:
    """The file, byte for byte; an answer that ends early is one whose stored bytes are damaged, or whose key ended.

    The version serves from its image, and goes on whatever becomes of its uploaded files.
    """
    context = get_context(request)
    with reading(context, actor) as work:
        version = catalogue.get_version(work, actor.tenant_id, name, number)
        file = pick_file(list(catalogue.list_files(work, version)), filename)
    check_kept(version)

    try:
        pieces = open_file(context.store, file)
    except FileDamaged:
        _check_still_kept(context, actor, name, number)
        report_damage(file)
        raise PlatformError("integrity_error", "The stored file is missing or damaged.") from None
    headers = {"content-length": str(file.bytes), "x-lorikeet-sha256": file.sha256}
    return StreamingResponse(_while_allowed(context, actor, pieces), media_type=BYTES, headers=headers)


def _while_allowed(context: PlatformContext, actor: Actor, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, as long as who asked for them may have them."""
    look_at = monotonic() + LOOK_EVERY_S
    for piece in pieces:
        if monotonic() >= look_at:
            try:
                check_still_reads(context, actor)
            except PlatformError as refusal:
                raise DownloadCut(refusal.code) from None  # the status is sent: no refusal can be rendered any more
            look_at = monotonic() + LOOK_EVERY_S
        yield piece


def _check_still_kept(context: PlatformContext, actor: Actor, name: str, number: int) -> None:
    """Raises PlatformError(not_found) for a version that was purged between the look at it and the look at its file."""
    with reading(context, actor) as work:
        check_kept(catalogue.get_version(work, actor.tenant_id, name, number))
