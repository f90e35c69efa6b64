"""The actor behind a request for a tenant's adapters, on each of the two ports.

The routes of adapters, aliases and uploads are the same on both: their routers are made by functions that take a prefix
and one of `tenant_actor` and `administrator_actor`. The router depends on `acting_as` it; its routes take an `Acting`.

Whatever they do with the registry they do in a transaction of that actor, `reading` or `changing`: it reaches the
adapters that the actor's key is limited to, and a change is none when the key ended after the request began.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from lorikeet_platform.accounts.access import Admin
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor, FindActor
from lorikeet_platform.auth.standing import key_now
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.db.tables import Tenant
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.reach import limit_reach
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


@contextmanager
def reading(context: PlatformContext, actor: Actor) -> Iterator[Session]:
    """A transaction that changes nothing, as far as the actor's key reaches."""
    with context.db.tenant(actor.tenant_id).read() as work:
        limit_reach(work, None if actor.key is None else actor.key.allowed_adapters)
        yield work


@contextmanager
def changing(context: PlatformContext, actor: Actor) -> Iterator[Session]:
    """A transaction that may change something, as far as the actor's key reaches now.

    Raises:
        PlatformError: what `check_still_allowed` raises.
    """
    with context.db.tenant(actor.tenant_id).unit_of_work() as work:
        check_still_allowed(work, actor, context.clock())
        yield work


def check_still_allowed(work: Session, actor: Actor, now: int) -> None:
    """Whether the actor may still do what it was let in for: between then and now lie a body, an engine, or a wait.

    It looks and does not lock: a revocation waits for nobody's work, and whatever begins after its commit sees it.

    Raises:
        PlatformError: invalid_api_key, tenant_suspended, insufficient_scope for a key that lost a scope meanwhile.
    """
    if actor.key is None:
        limit_reach(work, None)
        return
    tenant = work.get_one(Tenant, actor.tenant_id, populate_existing=True)
    key = key_now(work, tenant, actor.key.key_id, now)
    if not actor.key.scopes.issubset(key.scopes):
        raise PlatformError("insufficient_scope", "The API key lost a scope meanwhile.")
    limit_reach(work, key.allowed_adapters)


def check_still_reads(context: PlatformContext, actor: Actor) -> None:
    """`check_still_allowed` for an answer that takes long. Synchronous."""
    with context.db.tenant(actor.tenant_id).read() as work:
        check_still_allowed(work, actor, context.clock())
