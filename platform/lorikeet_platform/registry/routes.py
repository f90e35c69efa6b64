"""Adapters and versions of the calling tenant: transport only."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.registry import catalogue
from lorikeet_platform.registry.schemas import Adapter, AdapterList, Version, VersionCreate, VersionList
from lorikeet_platform.registry.sealing import CONFIG, WEIGHTS, Sealed, SealRequest, seal
from lorikeet_platform.registry.uploads.service import purge_bytes
from lorikeet_platform.web.access import Caller
from lorikeet_platform.web.json_body import StrictJsonRoute

LONGEST_WAIT_S = 30
POLL_S = 0.1
HIGHEST_NUMBER = 2**31 - 1  # what the column holds

router = APIRouter(prefix="/v1/adapters", tags=["adapters"], route_class=StrictJsonRoute)


@router.get("", operation_id="list_own_adapters")
def list_own_adapters(caller: Caller, request: Request) -> AdapterList:
    with get_context(request).db.read() as work:
        return AdapterList(data=[Adapter.of(entry) for entry in catalogue.list_adapters(work, caller.tenant_id)])


@router.get("/{name}", operation_id="get_adapter")
def get_adapter(name: str, caller: Caller, request: Request) -> Adapter:
    with get_context(request).db.read() as work:
        return Adapter.of(catalogue.get_adapter(work, caller.tenant_id, name))


@router.get("/{name}/versions", operation_id="list_versions")
def list_versions(name: str, caller: Caller, request: Request) -> VersionList:
    with get_context(request).db.read() as work:
        entry = catalogue.get_adapter(work, caller.tenant_id, name)
        return VersionList(data=[Version.of(name, version) for version in entry.versions])


@router.post("/{name}/versions", operation_id="create_version", status_code=202, responses={200: {"model": Version}})
def create_version(name: str, body: VersionCreate, caller: Caller, request: Request, response: Response) -> Version:
    """Seal two complete uploads into a version; 200 with the existing one when the content is the same."""
    context = get_context(request)
    wanted = SealRequest(
        adapter=name,
        uploads={CONFIG: body.files.config, WEIGHTS: body.files.weights},
        move_live=body.alias is not None,
        description=body.description,
    )
    with context.db.unit_of_work() as work:
        sealed = seal(work, caller, wanted, base_model=context.settings.model_name, now=context.clock())
    _after_commit(context, sealed)
    if sealed.job_id is None:
        response.status_code = 200
    return Version.of(name, sealed.version)


@router.get("/{name}/versions/{number}", operation_id="get_version")
async def get_version(
    name: str,
    number: Annotated[int, Path(ge=1, le=HIGHEST_NUMBER)],
    caller: Caller,
    request: Request,
    wait: Annotated[int, Query(ge=0, le=LONGEST_WAIT_S, description="seconds to wait for the verdict")] = 0,
) -> Version:
    """The version; with `wait`, as soon as it is no longer being validated."""
    context = get_context(request)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        version = await run_in_threadpool(_read_version, context, caller.tenant_id, name, number)
        if version.state != "validating" or loop.time() >= deadline or await request.is_disconnected():
            return Version.of(name, version)
        await asyncio.sleep(POLL_S)


def _read_version(context: PlatformContext, tenant_id: str, name: str, number: int) -> AdapterVersion:
    with context.db.read() as work:
        return catalogue.get_version(work, tenant_id, name, number)


def _after_commit(context: PlatformContext, sealed: Sealed) -> None:
    if sealed.job_id is not None:
        context.wake(sealed.job_id)
    purge_bytes(context.store, [(sealed.version.tenant_id, upload_id) for upload_id in sealed.spare_uploads])
