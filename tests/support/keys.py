"""Keys as tests need them: made by the service, without a port."""

from __future__ import annotations

from typing import Any

from lorikeet_platform.api_keys.minting import Wanted
from lorikeet_platform.api_keys.service import create_key
from lorikeet_platform.auth.scopes import Scope
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Tenant as TenantRow
from lorikeet_platform.limits.service import Changes
from tests.support.platform_parts import Tenant


def a_key(
    context: PlatformContext,
    tenant: Tenant,
    *scopes: Scope,
    name: str = "second",
    limits: Changes | None = None,
    **wanted: Any,
) -> Tenant:
    """The tenant with another key of it, which has just these scopes."""
    with context.db.platform.unit_of_work() as work:
        key, secret = create_key(
            work,
            context.pepper,
            tenant_id=tenant.id,
            name=name,
            now=context.clock(),
            wanted=Wanted(scopes=scopes, **wanted),
            limits=limits,
        )
        return Tenant(tenant.id, tenant.slug, key.id, secret)


def keys_may_make_keys(context: PlatformContext, tenant: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        work.get_one(TenantRow, tenant.id).keys_make_keys = True
