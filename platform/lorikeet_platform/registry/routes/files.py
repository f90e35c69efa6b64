"""A version's files, as they were uploaded: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry import catalogue, lifecycle
from lorikeet_platform.registry.acting import Acting
from lorikeet_platform.registry.files import FileDamaged, check_kept, open_file, pick_file
from lorikeet_platform.registry.lifecycle import Step
from lorikeet_platform.registry.routes.parameters import VersionNumber
from lorikeet_platform.registry.schemas import VersionFile, VersionFileList

BYTES = "application/octet-stream"


def add_to(router: APIRouter) -> None:
    router.get("/{name}/versions/{number}/files", operation_id="list_files", tags=["versions"])(list_files)
    router.get(
        "/{name}/versions/{number}/files/{filename}",
        operation_id="download_file",
        response_class=StreamingResponse,
        responses={200: {"content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}},
        tags=["versions"],
    )(download_file)


def list_files(name: str, number: VersionNumber, actor: Acting, request: Request) -> VersionFileList:
    with get_context(request).db.read() as work:
        version = catalogue.get_version(work, actor.tenant_id, name, number)
        files = catalogue.list_files(work, version)
    return VersionFileList(
        data=[VersionFile(filename=file.filename, bytes=file.bytes, sha256=file.sha256) for file in files]
    )


def download_file(
    name: str, number: VersionNumber, filename: str, actor: Acting, request: Request
) -> StreamingResponse:
    """The file, byte for byte; an answer that ends early is one whose stored bytes are damaged."""
    context = get_context(request)
    with context.db.read() as work:
        version = catalogue.get_version(work, actor.tenant_id, name, number)
        file = pick_file(list(catalogue.list_files(work, version)), filename)
    check_kept(version)

    def take_out() -> None:
        _take_out(context, actor.tenant_id, name, number)

    try:
        pieces = open_file(context.store, file, take_out)
    except FileDamaged:
        raise PlatformError("integrity_error") from None
    headers = {"content-length": str(file.bytes), "x-lorikeet-sha256": file.sha256}
    return StreamingResponse(pieces, media_type=BYTES, headers=headers)


def _take_out(context: PlatformContext, tenant_id: str, name: str, number: int) -> None:
    """What was damaged once is not served on trust: the version is quarantined."""
    step = Step(
        tenant_id=tenant_id,
        adapter=name,
        number=number,
        actor=SYSTEM,
        now=context.clock(),
        reason="a stored file is damaged",
    )
    with context.db.unit_of_work() as work:
        moved = lifecycle.quarantine(work, step)
    for job_id in moved.job_ids:
        context.wake(job_id)
