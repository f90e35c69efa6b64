"""tus 1.0 under /v1/uploads: transport only."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.db.tables import Upload
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.names import check_new_name
from lorikeet_platform.registry.uploads import protocol, service
from lorikeet_platform.registry.uploads.receiving import receive_slice
from lorikeet_platform.web.access import Caller, Public
from lorikeet_platform.web.json_body import check_content_type

PREFIX = "/v1/uploads"
RESUMABLE = {"tus-resumable": protocol.VERSION}


class TusRoute(APIRoute):
    """Refusals carry the protocol's version too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_and_stamp(request: Request) -> Response:
            try:
                return await handle(request)
            except PlatformError as error:
                error.headers.update(RESUMABLE)
                raise

        return handle_and_stamp


router = APIRouter(tags=["uploads"], route_class=TusRoute, default_response_class=Response)


@router.options(PREFIX, operation_id="describe_uploads", status_code=204, dependencies=[Public])
async def describe_uploads(request: Request) -> Response:
    """What this server speaks."""
    headers = {
        "tus-version": protocol.VERSION,
        "tus-extension": protocol.EXTENSIONS,
        "tus-checksum-algorithm": ",".join(protocol.ALGORITHMS),
        "tus-max-size": str(get_context(request).settings.limits.upload_file_bytes),
    }
    return Response(status_code=204, headers=RESUMABLE | headers)


@router.post(PREFIX, operation_id="create_upload", status_code=201)
def create_upload(caller: Caller, request: Request) -> Response:
    """Announce a file: its length, and in Upload-Metadata its adapter, file name and SHA-256."""
    context = get_context(request)
    limits = context.settings.limits
    protocol.check_version(request)
    if "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0":
        raise PlatformError("invalid_value", "An upload is created without a body; its bytes follow by PATCH.")
    length = protocol.read_length(request, limits.upload_file_bytes)
    metadata = protocol.read_metadata(request)
    check_new_name(metadata.adapter, context.settings.model_name)
    with context.db.unit_of_work() as work:
        upload = service.create_upload(work, caller, metadata, length, limits=limits, now=context.clock())
    headers = {"location": f"{PREFIX}/{upload.id}", "upload-expires": protocol.http_date(upload.expires_at)}
    return Response(status_code=201, headers=RESUMABLE | headers)


@router.head(PREFIX + "/{upload_id}", operation_id="get_upload")
def get_upload(upload_id: str, caller: Caller, request: Request) -> Response:
    """Where the upload stands."""
    protocol.check_version(request)
    upload = _find(get_context(request), caller.tenant_id, upload_id)
    return Response(status_code=200, headers=RESUMABLE | _standing(upload))


@router.patch(PREFIX + "/{upload_id}", operation_id="append_to_upload", status_code=204)
async def append_to_upload(upload_id: str, caller: Caller, request: Request) -> Response:
    """Append the body at Upload-Offset."""
    context = get_context(request)
    protocol.check_version(request)
    check_content_type(request, protocol.SLICE_TYPE)
    offset, checksum = protocol.read_offset(request), protocol.read_checksum(request)
    upload = await run_in_threadpool(_find, context, caller.tenant_id, upload_id)
    service.check_slice(upload, offset)
    if int(request.headers.get("content-length", "0")) > upload.length - offset:
        raise PlatformError("request_too_large", "The slice goes past the end of the file.")
    upload.received = await receive_slice(context, upload, request.stream(), checksum)
    return Response(status_code=204, headers=RESUMABLE | _standing(upload))


@router.delete(PREFIX + "/{upload_id}", operation_id="terminate_upload", status_code=204)
def terminate_upload(upload_id: str, caller: Caller, request: Request) -> Response:
    """Forget the upload and its bytes."""
    context = get_context(request)
    protocol.check_version(request)
    with context.db.unit_of_work() as work:
        service.terminate_upload(work, caller.tenant_id, upload_id, context.clock())
    service.purge_bytes(context.store, [(caller.tenant_id, upload_id)])
    return Response(status_code=204, headers=RESUMABLE)


def _find(context: PlatformContext, tenant_id: str, upload_id: str) -> Upload:
    with context.db.read() as work:
        return service.get_upload(work, tenant_id, upload_id, context.clock())


def _standing(upload: Upload) -> dict[str, str]:
    metadata = {"adapter": upload.adapter_name, "filename": upload.filename, "sha256": upload.sha256}
    return {
        "upload-offset": str(upload.received),
        "upload-length": str(upload.length),
        "upload-expires": protocol.http_date(upload.expires_at),
        "upload-metadata": ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in metadata.items()),
    }
