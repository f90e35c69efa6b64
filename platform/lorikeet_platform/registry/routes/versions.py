"""Versions: transport only."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.clock import HOUR
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry import catalogue
from lorikeet_platform.registry.acting import Acting, changing, check_still_allowed, reading
from lorikeet_platform.registry.routes.parameters import VersionNumber
from lorikeet_platform.registry.schemas import Reason, Version, VersionCreate, VersionList
from lorikeet_platform.registry.uploads.service import purge_bytes
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Moved, Step
from lorikeet_platform.registry.versions.sealing import Sealed, SealRequest, seal, use_existing
from lorikeet_platform.registry.versions.warming import end_running, warm
from lorikeet_platform.web.access import check_scope
from lorikeet_platform.web.places import waiting

LONGEST_WAIT_S = 30
# A small adapter's verdict comes within a second; whoever waits for a long one reads the database once a second.
FIRST_POLL_S, LONGEST_POLL_S, POLL_GROWTH = 0.1, 1.0, 1.3


def add_to(router: APIRouter) -> None:
    router.get("/{name}/versions", operation_id="list_versions", tags=["versions"])(list_versions)
    router.post(
        "/{name}/versions",
        operation_id="create_version",
        status_code=202,
        responses={200: {"model": Version}},
        tags=["versions"],
    )(create_version)
    router.get("/{name}/versions/{number}", operation_id="get_version", tags=["versions"])(get_version)
    router.delete("/{name}/versions/{number}", operation_id="delete_version", status_code=202, tags=["versions"])(
        delete_version
    )
    router.post("/{name}/versions/{number}/retire", operation_id="retire_version", tags=["versions"])(retire_version)
    router.post("/{name}/versions/{number}/restore", operation_id="restore_version", tags=["versions"])(restore_version)
    router.post("/{name}/versions/{number}/retry", operation_id="retry_version", status_code=202, tags=["versions"])(
        retry_version
    )


@needs("adapters:read")
def list_versions(name: str, actor: Acting, request: Request) -> VersionList:
    """Newest first."""
    with reading(get_context(request), actor) as work:
        entry = catalogue.get_adapter(work, actor.tenant_id, name)
        return VersionList(data=[Version.of(name, version) for version in entry.versions])


@needs("adapters:write")
async def create_version(
    name: str, body: VersionCreate, actor: Acting, request: Request, response: Response
) -> Version:
    """Seal complete uploads into a version; 200 with the existing one when a ready version has the same content."""
    if body.alias is not None:
        check_scope(actor.key, "deployments:write")
    context = get_context(request)
    wanted = SealRequest(adapter=name, files=body.files, alias=body.alias, description=body.description)
    sealed = await run_in_threadpool(_seal, context, actor, wanted)
    if sealed.job_id is not None:
        return Version.of(name, sealed.version)
    if sealed.moves_alias and sealed.version.digest is not None:
        await warm(context, actor.tenant_id, [sealed.version.digest])
    await run_in_threadpool(_use_existing, context, actor, sealed, body.alias)
    response.status_code = 200
    return Version.of(name, sealed.version)


@needs("adapters:read")
async def get_version(
    name: str,
    number: VersionNumber,
    actor: Acting,
    request: Request,
    wait: Annotated[int, Query(ge=0, le=LONGEST_WAIT_S, description="seconds to wait for the verdict")] = 0,
) -> Version:
    """The version; with `wait`, as soon as it is no longer being validated, or the key ends."""
    context = get_context(request)
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + wait, FIRST_POLL_S
    while True:
        version = await run_in_threadpool(_look_again, context, actor, name, number)
        if version.state != "validating" or loop.time() >= deadline or await request.is_disconnected():
            return Version.of(name, version)
        with waiting(request):
            await asyncio.sleep(min(pause_s, max(0.0, deadline - loop.time())))
        pause_s = min(pause_s * POLL_GROWTH, LONGEST_POLL_S)


@needs("adapters:write")
def delete_version(name: str, number: VersionNumber, actor: Acting, request: Request) -> Version:
    """Take a version out of service and remove its files as soon as nothing runs on it; its number is never used again.

    Refused while an alias points at it.
    """
    context = get_context(request)
    with changing(context, actor) as work:
        moved = lifecycle.delete(work, _step(context, actor, name, number))
    wake_for(context, moved)
    return Version.of(name, moved.version)


@needs("adapters:write")
async def retire_version(name: str, number: VersionNumber, body: Reason, actor: Acting, request: Request) -> Version:
    """Take a version out of service; what runs on it ends as it began, and it can be restored for a while.

    Refused while an alias points at it.
    """
    context = get_context(request)
    step = _step(context, actor, name, number, body.reason)
    moved, has_twin = await run_in_threadpool(_retire, context, actor, step)
    if body.force and moved.version.digest is not None and not has_twin:
        await end_running(context, actor.tenant_id, moved.version.digest)
    return Version.of(name, moved.version)


@needs("adapters:write")
async def restore_version(name: str, number: VersionNumber, actor: Acting, request: Request) -> Version:
    """Put a retired version into service again, once the engine has it."""
    context = get_context(request)
    return await bring_back(context, actor, _step(context, actor, name, number), is_release=False)


@needs("adapters:write")
def retry_version(name: str, number: VersionNumber, actor: Acting, request: Request) -> Version:
    """Validate a version again whose validation failed for a reason of ours."""
    context = get_context(request)
    with changing(context, actor) as work:
        moved = lifecycle.retry(work, _step(context, actor, name, number))
    wake_for(context, moved)
    return Version.of(name, moved.version)


async def bring_back(context: PlatformContext, actor: Actor, step: Step, *, is_release: bool) -> Version:
    """Warm the version, then make it ready; what forbids it is said before the engine is asked, and looked at again.

    And warm it once more: a job that ends its service may have come to the engine between the two.
    """
    version = await run_in_threadpool(_read_version, context, actor, step.adapter, step.number)
    digests = () if version.digest is None else (version.digest,)
    is_gone = lifecycle.check_restorable(version, step.now, is_release=is_release)
    if is_gone:
        await warm(context, step.tenant_id, digests)
    moved = await run_in_threadpool(_restore, context, actor, step, is_release)
    if not is_gone:
        return Version.of(step.adapter, moved.version)
    with suppress(PlatformError):  # it is in service; whoever asks for it has it loaded, or is told why not
        await warm(context, step.tenant_id, digests)
    # As it is now: the engine may have found it damaged, and then it is quarantined.
    version = await run_in_threadpool(_read_version, context, actor, step.adapter, step.number)
    return Version.of(step.adapter, version)


def _seal(context: PlatformContext, actor: Actor, wanted: SealRequest) -> Sealed:
    settings = context.settings
    with changing(context, actor) as work:
        sealed = seal(work, actor, wanted, base_model=settings.model_name, now=context.clock())
    if sealed.job_id is not None:
        context.wake(sealed.job_id)
    return sealed


def _use_existing(context: PlatformContext, actor: Actor, sealed: Sealed, alias: str | None) -> None:
    with changing(context, actor) as work:
        use_existing(work, actor, sealed, alias, context.clock())
    purge_bytes(context.store, [(actor.tenant_id, upload_id) for upload_id in sealed.spare_uploads])


def _retire(context: PlatformContext, actor: Actor, step: Step) -> tuple[Moved, bool]:
    keep_us = context.settings.retention.retired_days * 24 * HOUR
    with changing(context, actor) as work:
        moved = lifecycle.retire(work, step, keep_us=keep_us)
        is_served = lifecycle.has_twin(work, moved.version, "ready")
    wake_for(context, moved)
    return moved, is_served


def _restore(context: PlatformContext, actor: Actor, step: Step, is_release: bool) -> Moved:
    with changing(context, actor) as work:
        moved = lifecycle.restore(work, step, is_release=is_release)
    wake_for(context, moved)
    return moved


def _read_version(context: PlatformContext, actor: Actor, name: str, number: int) -> AdapterVersion:
    with reading(context, actor) as work:
        return catalogue.get_version(work, actor.tenant_id, name, number)


def _look_again(context: PlatformContext, actor: Actor, name: str, number: int) -> AdapterVersion:
    """The version, for somebody who waits for it, and may wait no longer once the key has ended."""
    with reading(context, actor) as work:
        check_still_allowed(work, actor, context.clock())
        return catalogue.get_version(work, actor.tenant_id, name, number)


def _step(context: PlatformContext, actor: Actor, name: str, number: int, reason: str | None = None) -> Step:
    return Step(
        tenant_id=actor.tenant_id, adapter=name, number=number, actor=actor.name, now=context.clock(), reason=reason
    )


def wake_for(context: PlatformContext, moved: Moved) -> None:
    """Synchronous, for the thread that ran the transaction: a broker that does not answer blocks it for seconds."""
    for job_id in moved.job_ids:
        context.wake(job_id)
