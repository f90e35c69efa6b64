"""Quarantine, for administrators: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.registry.acting import Acting, changing
from lorikeet_platform.registry.routes.parameters import VersionNumber
from lorikeet_platform.registry.routes.versions import bring_back, wake_for
from lorikeet_platform.registry.schemas import Quarantine, Version
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Moved, Step
from lorikeet_platform.registry.versions.warming import end_running


def add_to(router: APIRouter) -> None:
    router.post("/{name}/versions/{number}/quarantine", operation_id="quarantine_version", tags=["versions"])(
        quarantine_version
    )
    router.post("/{name}/versions/{number}/release", operation_id="release_version", tags=["versions"])(release_version)


async def quarantine_version(
    name: str, number: VersionNumber, body: Quarantine, actor: Acting, request: Request
) -> Version:
    """Take a version out of service at once and end what runs on it.

    Aliases that point at it go back to their last healthy revision, or end where there is none.
    """
    context = get_context(request)
    step = Step(
        tenant_id=actor.tenant_id,
        adapter=name,
        number=number,
        actor=actor.name,
        now=context.clock(),
        reason=body.reason,
    )
    moved, has_twin = await run_in_threadpool(_quarantine, context, actor, step)
    if moved.version.digest is not None and not has_twin:
        await end_running(context, actor.tenant_id, moved.version.digest)
    return Version.of(name, moved.version)


async def release_version(name: str, number: VersionNumber, actor: Acting, request: Request) -> Version:
    """Put a quarantined version into service again, once the engine has it; aliases stay where they are."""
    context = get_context(request)
    step = Step(tenant_id=actor.tenant_id, adapter=name, number=number, actor=actor.name, now=context.clock())
    return await bring_back(context, actor, step, is_release=True)


def _quarantine(context: PlatformContext, actor: Actor, step: Step) -> tuple[Moved, bool]:
    with changing(context, actor) as work:
        moved = lifecycle.quarantine(work, step)
        is_served = lifecycle.has_twin(work, moved.version, "ready")
    wake_for(context, moved)
    return moved, is_served
