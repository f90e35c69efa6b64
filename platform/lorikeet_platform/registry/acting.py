"""The actor behind a request for a tenant's adapters, on each of the two ports.

The routes of adapters, aliases and uploads are the same on both: their routers are made by functions that take one of
these dependencies and a prefix.
"""

from __future__ import annotations

from fastapi import Request

from lorikeet_platform.accounts.access import Admin
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.context import get_context
from lorikeet_platform.tenants.service import get_tenant
from lorikeet_platform.web.access import Caller


async def tenant_actor(caller: Caller) -> Actor:
    """The tenant of the request's key."""
    return Actor(caller.tenant_id, caller.key_id)


def administrator_actor(slug: str, _admin: Admin, request: Request) -> Actor:
    """The tenant in the address; raises PlatformError(not_found)."""
    with get_context(request).db.read() as work:
        return Actor(get_tenant(work, slug).id, ADMINISTRATOR)
