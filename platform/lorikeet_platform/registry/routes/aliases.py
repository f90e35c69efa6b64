"""Aliases: transport only. A change is warmed in the engine before it is made."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from lorikeet_platform.auth.actor import Actor
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.registry import catalogue
from lorikeet_platform.registry.acting import Acting, changing, reading
from lorikeet_platform.registry.aliasing.aliases import AliasKey, Change, alias_not_found, history_of, remove
from lorikeet_platform.registry.aliasing.changes import Planned, perform, plan_rollback, plan_set
from lorikeet_platform.registry.catalogue import AliasEntry
from lorikeet_platform.registry.reach import check_reach
from lorikeet_platform.registry.routes.parameters import IfMatch, IfNoneMatch, etag, expected_revision
from lorikeet_platform.registry.schemas import (
    Alias,
    AliasHistory,
    AliasList,
    AliasRevision,
    AliasRollback,
    AliasSet,
)
from lorikeet_platform.registry.versions.warming import warm


def add_to(router: APIRouter) -> None:
    router.get("/{name}/aliases", operation_id="list_aliases", tags=["aliases"])(list_aliases)
    router.get("/{name}/aliases/{alias}", operation_id="get_alias", tags=["aliases"])(get_alias)
    router.put("/{name}/aliases/{alias}", operation_id="set_alias", tags=["aliases"])(set_alias)
    router.delete("/{name}/aliases/{alias}", operation_id="delete_alias", status_code=204, tags=["aliases"])(
        delete_alias
    )
    router.get("/{name}/aliases/{alias}/history", operation_id="list_alias_history", tags=["aliases"])(
        list_alias_history
    )
    router.post("/{name}/aliases/{alias}/rollback", operation_id="roll_back_alias", tags=["aliases"])(roll_back_alias)


@needs("adapters:read")
def list_aliases(name: str, actor: Acting, request: Request) -> AliasList:
    with reading(get_context(request), actor) as work:
        entry = catalogue.get_adapter(work, actor.tenant_id, name)
    return AliasList(data=[Alias.of(alias) for alias in entry.aliases])


@needs("adapters:read")
def get_alias(name: str, alias: str, actor: Acting, request: Request, response: Response) -> Alias:
    """Where the alias points; its revision is also the answer's ETag."""
    return _shown(_entry(get_context(request), actor, name, alias), response)


@needs("deployments:write")
async def set_alias(
    name: str,
    alias: str,
    body: AliasSet,
    actor: Acting,
    request: Request,
    response: Response,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Alias:
    """Point an alias, which is created when it is missing, at one to five ready versions.

    The engine loads them first; requests follow when all of them are there.
    """
    expected = expected_revision(if_match, if_none_match)
    context = get_context(request)
    planned = await run_in_threadpool(_plan_set, context, actor, name, alias, body, expected)
    return await _make(context, actor, name, planned, response)


@needs("deployments:write")
def delete_alias(name: str, alias: str, actor: Acting, request: Request, if_match: IfMatch = None) -> Response:
    """End an alias; its history stays."""
    context = get_context(request)
    change = Change(actor=actor.name, now=context.clock(), expected=expected_revision(if_match))
    with changing(context, actor) as work:
        adapter = catalogue.find_adapter(work, actor.tenant_id, name, for_update=True)
        remove(work, AliasKey(actor.tenant_id, adapter.id, alias), change)
    return Response(status_code=204)


@needs("adapters:read")
def list_alias_history(name: str, alias: str, actor: Acting, request: Request) -> AliasHistory:
    """Every revision, newest first, of aliases that are gone, too."""
    with reading(get_context(request), actor) as work:
        adapter = catalogue.find_adapter(work, actor.tenant_id, name)
        changes = history_of(work, AliasKey(actor.tenant_id, adapter.id, alias))
    return AliasHistory(data=[AliasRevision.of(change) for change in changes])


@needs("deployments:write")
async def roll_back_alias(
    name: str,
    alias: str,
    body: AliasRollback,
    actor: Acting,
    request: Request,
    response: Response,
    if_match: IfMatch = None,
) -> Alias:
    """Let the alias say again what it said in an earlier revision; that is a new revision."""
    expected = expected_revision(if_match)
    context = get_context(request)
    planned = await run_in_threadpool(_plan_rollback, context, actor, name, alias, body, expected)
    return await _make(context, actor, name, planned, response)


def _plan_set(
    context: PlatformContext, actor: Actor, name: str, alias: str, body: AliasSet, expected: int | None
) -> Planned:
    change = Change(actor=actor.name, now=context.clock(), reason=body.reason, expected=expected)
    shares = [(target.version, target.weight) for target in body.targets]
    guard = None if body.guard is None else body.guard.model_dump()
    with reading(context, actor) as work:
        adapter = catalogue.find_adapter(work, actor.tenant_id, name)
        key = AliasKey(actor.tenant_id, adapter.id, alias)
        return plan_set(work, key, shares, sticky=body.sticky, guard=guard, change=change)


def _plan_rollback(
    context: PlatformContext, actor: Actor, name: str, alias: str, body: AliasRollback, expected: int | None
) -> Planned:
    change = Change(actor=actor.name, now=context.clock(), reason=body.reason, expected=expected)
    with reading(context, actor) as work:
        adapter = catalogue.find_adapter(work, actor.tenant_id, name)
        return plan_rollback(work, AliasKey(actor.tenant_id, adapter.id, alias), body.to_revision, change)


async def _make(context: PlatformContext, actor: Actor, name: str, planned: Planned, response: Response) -> Alias:
    await warm(context, actor.tenant_id, planned.digests)
    await run_in_threadpool(_perform, context, actor, planned)
    return _shown(await run_in_threadpool(_entry, context, actor, name, planned.key.alias), response)


def _perform(context: PlatformContext, actor: Actor, planned: Planned) -> None:
    with changing(context, actor) as work:
        check_reach(work, planned.key.adapter_id)  # the key may have been limited while the engine loaded
        perform(work, planned)


def _entry(context: PlatformContext, actor: Actor, name: str, alias: str) -> AliasEntry:
    with reading(context, actor) as work:
        adapter = catalogue.get_adapter(work, actor.tenant_id, name)
    for entry in adapter.aliases:
        if entry.alias.alias == alias:
            return entry
    raise alias_not_found(alias)


def _shown(entry: AliasEntry, response: Response) -> Alias:
    response.headers["etag"] = etag(entry.alias.revision)
    return Alias.of(entry)
