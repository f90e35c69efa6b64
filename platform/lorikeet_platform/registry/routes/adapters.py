"""Adapters: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import get_context
from lorikeet_platform.registry import catalogue
from lorikeet_platform.registry.acting import Acting, changing, reading
from lorikeet_platform.registry.aliasing.aliases import has_aliases
from lorikeet_platform.registry.schemas import Adapter, AdapterList
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.web.access import check_scope


def add_to(router: APIRouter) -> None:
    router.get("", operation_id="list_adapters", tags=["adapters"])(list_adapters)
    router.get("/{name}", operation_id="get_adapter", tags=["adapters"])(get_adapter)
    router.delete("/{name}", operation_id="delete_adapter", status_code=204, tags=["adapters"])(delete_adapter)


@needs("adapters:read")
def list_adapters(actor: Acting, request: Request) -> AdapterList:
    with reading(get_context(request), actor) as work:
        return AdapterList(data=[Adapter.of(entry) for entry in catalogue.list_adapters(work, actor.tenant_id)])


@needs("adapters:read")
def get_adapter(name: str, actor: Acting, request: Request) -> Adapter:
    with reading(get_context(request), actor) as work:
        return Adapter.of(catalogue.get_adapter(work, actor.tenant_id, name))


@needs("adapters:write")
def delete_adapter(name: str, actor: Acting, request: Request) -> Response:
    """Remove an adapter with its versions and aliases. What runs on it ends as it began; its name is free at once.

    One that has aliases is in use: removing it takes the scope deployments:write, too.
    """
    context = get_context(request)
    with changing(context, actor) as work:
        adapter = catalogue.find_adapter(work, actor.tenant_id, name, for_update=True)
        if has_aliases(work, adapter):
            check_scope(actor.key, "deployments:write")
        job_ids = lifecycle.delete_adapter(work, actor.tenant_id, name, actor=actor.name, now=context.clock())
    for job_id in job_ids:
        context.wake(job_id)
    return Response(status_code=204)
