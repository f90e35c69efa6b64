"""tus 1.0, and a list of open uploads, under the prefix of a port: transport only."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.routing import compile_path

from lorikeet_platform.auth.actor import Actor, FindActor
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.db.tables import Tenant
from lorikeet_platform.db.tables import Upload as UploadRow
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import Limit
from lorikeet_platform.limits.stored import limits_of_tenant
from lorikeet_platform.registry.acting import Acting, acting_as, changing, reading
from lorikeet_platform.registry.names import MAX_NAME, check_new_name
from lorikeet_platform.registry.uploads import protocol, service
from lorikeet_platform.registry.uploads.quotas import check_disk
from lorikeet_platform.registry.uploads.receiving import ReceivingSlots, receive_slice
from lorikeet_platform.registry.uploads.schemas import Upload, UploadList
from lorikeet_platform.web.access import Public
from lorikeet_platform.web.json_body import check_content_type
from lorikeet_platform.web.places import counted_elsewhere
from lorikeet_platform.web.surplus import KnownQuery

AdapterName = Annotated[str | None, Query(max_length=MAX_NAME, description="of this adapter only")]
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


def upload_routes(prefix: str, find_actor: FindActor) -> APIRouter:
    """The protocol under `prefix`/uploads, for whom `find_actor` finds."""
    receiving = ReceivingSlots()
    routes = APIRouter(
        prefix=f"{prefix}/uploads",
        tags=["uploads"],
        route_class=TusRoute,
        default_response_class=Response,
        dependencies=[acting_as(find_actor), KnownQuery],
    )
    routes.add_api_route("", list_uploads, methods=["GET"], operation_id="list_uploads", response_class=JSONResponse)
    routes.add_api_route("", create_upload, methods=["POST"], operation_id="create_upload", status_code=201)
    one = "/{upload_id}"
    routes.add_api_route(one, get_upload, methods=["HEAD"], operation_id="get_upload")
    routes.add_api_route(one, terminate_upload, methods=["DELETE"], operation_id="terminate_upload", status_code=204)

    @routes.patch(one, operation_id="append_to_upload", status_code=204)
    @needs("adapters:write")
    async def append_to_upload(upload_id: str, actor: Acting, request: Request) -> Response:
        """Append the body at Upload-Offset."""
        limit = await _bodies_at_once(get_context(request), actor)
        with counted_elsewhere(request), receiving.hold(actor.tenant_id, limit):
            return await _append(upload_id, actor, request)

    description = APIRouter(prefix=f"{prefix}/uploads", tags=["uploads"], route_class=TusRoute, dependencies=[Public])
    description.add_api_route(
        "",
        describe_uploads,
        methods=["OPTIONS"],
        operation_id="describe_uploads",
        status_code=204,
        response_class=Response,
    )
    router = APIRouter()  # a route is known, to the metrics too, by the address it was registered with
    router.include_router(description)
    router.include_router(routes)
    return router


def large_bodies(prefix: str) -> re.Pattern[str]:
    """Addresses under `prefix` to which PATCH sends files."""
    return compile_path(f"{prefix}/uploads/{{upload_id}}")[0]


async def describe_uploads(request: Request) -> Response:
    """What this server speaks."""
    headers = {
        "tus-version": protocol.VERSION,
        "tus-extension": protocol.EXTENSIONS,
        "tus-checksum-algorithm": ",".join(protocol.ALGORITHMS),
        "tus-max-size": str(get_context(request).settings.limits.upload_file_bytes),
    }
    return Response(status_code=204, headers=RESUMABLE | headers)


@needs("adapters:read")
def list_uploads(actor: Acting, request: Request, adapter: AdapterName = None) -> UploadList:
    """Uploads that are not complete or not sealed yet: what a client on another machine goes on with."""
    context = get_context(request)
    with reading(context, actor) as work:
        uploads = service.list_uploads(work, actor.tenant_id, adapter, context.clock())
    return UploadList(data=[Upload.of(upload) for upload in uploads])


@needs("adapters:write")
def create_upload(actor: Acting, request: Request) -> Response:
    """Announce a file: its length, and in Upload-Metadata its adapter, file name and SHA-256."""
    context = get_context(request)
    limits = context.settings.limits
    protocol.check_version(request)
    if "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0":
        raise PlatformError("invalid_value", "An upload is created without a body; its bytes follow by PATCH.")
    length = protocol.read_length(request, limits.upload_file_bytes)
    metadata = protocol.read_metadata(request)
    check_new_name(metadata.adapter, context.settings.model_name)
    check_disk(context.store, length)
    with changing(context, actor) as work:
        upload = service.create_upload(work, actor, metadata, length, limits=limits, now=context.clock())
    location = f"{request.url.path}/{upload.id}"
    headers = {"location": location, "upload-expires": protocol.http_date(upload.expires_at)}
    return Response(status_code=201, headers=RESUMABLE | headers)


@needs("adapters:read")
def get_upload(upload_id: str, actor: Acting, request: Request) -> Response:
    """Where the upload stands."""
    protocol.check_version(request)
    upload = _find(get_context(request), actor, upload_id)
    return Response(status_code=200, headers=RESUMABLE | _standing(upload))


async def _append(upload_id: str, actor: Actor, request: Request) -> Response:
    context = get_context(request)
    protocol.check_version(request)
    check_content_type(request, protocol.SLICE_TYPE)
    offset, checksum = protocol.read_offset(request), protocol.read_checksum(request)
    upload = await run_in_threadpool(_find, context, actor, upload_id)
    service.check_slice(upload, offset)
    if int(request.headers.get("content-length", "0")) > upload.length - offset:
        raise PlatformError("request_too_large", "The slice goes past the end of the file.")
    upload.received = await receive_slice(context, actor, upload, request.stream(), checksum)
    return Response(status_code=204, headers=RESUMABLE | _standing(upload))


@needs("adapters:write")
def terminate_upload(upload_id: str, actor: Acting, request: Request) -> Response:
    """Forget the upload and its bytes."""
    context = get_context(request)
    protocol.check_version(request)
    with changing(context, actor) as work:
        service.terminate_upload(work, actor, upload_id, context.clock())
    service.purge_bytes(context.store, [(actor.tenant_id, upload_id)])
    return Response(status_code=204, headers=RESUMABLE)


def _find(context: PlatformContext, actor: Actor, upload_id: str) -> UploadRow:
    with reading(context, actor) as work:
        return service.get_upload(work, actor.tenant_id, upload_id, context.clock())


async def _bodies_at_once(context: PlatformContext, actor: Actor) -> Limit:
    """As many as uploads may be open."""
    if actor.key is not None:
        return actor.key.limits.of_tenant["open_uploads"]
    return await run_in_threadpool(_open_uploads, context, actor.tenant_id)


def _open_uploads(context: PlatformContext, tenant_id: str) -> Limit:
    with context.db.tenant(tenant_id).read() as work:
        return limits_of_tenant(work, work.get_one(Tenant, tenant_id))["open_uploads"]


def _standing(upload: UploadRow) -> dict[str, str]:
    metadata = {"adapter": upload.adapter_name, "filename": upload.filename, "sha256": upload.sha256}
    return {
        "upload-offset": str(upload.received),
        "upload-length": str(upload.length),
        "upload-expires": protocol.http_date(upload.expires_at),
        "upload-metadata": ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in metadata.items()),
    }
