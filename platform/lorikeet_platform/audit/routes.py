"""Audit events over HTTP: a tenant's on both ports, and everybody's with the platform's own for administrators."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.audit.events import newest
from lorikeet_platform.audit.schemas import AuditEvent, AuditEventPage
from lorikeet_platform.auth.actor import FindActor
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import get_context
from lorikeet_platform.registry.acting import Acting, acting_as
from lorikeet_platform.tenants.service import get_tenant
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.pagination import ALL_TENANTS, DEFAULT_PAGE, After, Cursors, PageLimit, cut
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

EVENTS: Final = "audit.events"
Slug = Annotated[str | None, Query(max_length=40, description="slug: events of this tenant only")]


def audit_routes(prefix: str, find_actor: FindActor) -> APIRouter:
    """A tenant's events under `prefix`, for whom `find_actor` finds."""
    router = APIRouter(
        prefix=f"{prefix}/audit_events",
        tags=["audit"],
        route_class=StrictJsonRoute,
        dependencies=[acting_as(find_actor), KnownQuery, WantedBody],
    )
    router.get("", operation_id="list_audit_events")(list_audit_events)
    return router


def all_audit_routes() -> APIRouter:
    """All events, on the administration port."""
    router = APIRouter(
        prefix="/admin/v1/audit_events",
        tags=["audit"],
        route_class=StrictJsonRoute,
        dependencies=[Depends(administrator), KnownQuery, WantedBody],
    )
    router.get("", operation_id="list_all_audit_events")(list_all_audit_events)
    return router


@needs("audit:read")
def list_audit_events(
    actor: Acting, request: Request, limit: PageLimit = DEFAULT_PAGE, after: After = None
) -> AuditEventPage:
    """What was changed for the tenant, the newest first."""
    return _page(request, actor.tenant_id, limit, after)


def list_all_audit_events(
    request: Request, tenant: Slug = None, limit: PageLimit = DEFAULT_PAGE, after: After = None
) -> AuditEventPage:
    """What was changed for any tenant, or for the platform itself; the newest first."""
    if tenant is None:
        return _page(request, None, limit, after)
    with get_context(request).db.platform.read() as work:
        tenant_id = get_tenant(work, tenant).id
    return _page(request, tenant_id, limit, after)


def _page(request: Request, tenant_id: str | None, limit: int, after: str | None) -> AuditEventPage:
    context = get_context(request)
    cursors = Cursors(context.pepper, ALL_TENANTS if tenant_id is None else tenant_id, EVENTS)
    position = cursors.read(after)
    behind = None if position is None else str(position[0])
    transactions = context.db.platform if tenant_id is None else context.db.tenant(tenant_id)
    with transactions.read() as work:
        page, has_more = cut(newest(work, tenant_id, behind=behind, limit=limit + 1), limit)
    return AuditEventPage(
        data=[AuditEvent.of(entry) for entry in page],
        has_more=has_more,
        next=cursors.write([page[-1].event.id]) if has_more else None,
    )
