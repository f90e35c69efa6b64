"""The actor behind a request for a tenant's adapters, on each of the two ports.

The routes of adapters, aliases and uploads are the same on both: their routers are made by functions that take a prefix
and one of `tenant_actor` and `administrator_actor`. The router depends on `acting_as` it; its routes take an `Acting`.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Depends, Request

from lorikeet_platform.accounts.access import Admin
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor, FindActor
from lorikeet_platform.context import get_context
from lorikeet_platform.tenants.service import get_tenant
from lorikeet_platform.web.access import Caller


async def tenant_actor(caller: Caller) -> Actor:
    """The tenant of the request's key."""
    return Actor(caller.tenant_id, caller.key_id, caller)


def administrator_actor(slug: str, _admin: Admin, request: Request) -> Actor:
    """The tenant in the address; raises PlatformError(not_found)."""
    with get_context(request).db.platform.read() as work:
        return Actor(get_tenant(work, slug).id, ADMINISTRATOR)


def acting_as(find_actor: FindActor) -> Any:
    """A router's dependency: finds out the actor before any of its routes' own parameters are looked at."""

    async def remember_actor(request: Request, actor: Actor = Depends(find_actor)) -> None:
        request.state.actor = actor

    return Depends(remember_actor)


async def _remembered_actor(request: Request) -> Actor:
    return cast(Actor, request.state.actor)


Acting = Annotated[Actor, Depends(_remembered_actor)]
