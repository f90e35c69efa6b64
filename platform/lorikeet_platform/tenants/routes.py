"""Tenants on the administration port: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.overview.memory import memory_of_tenant
from lorikeet_platform.tenants import service
from lorikeet_platform.tenants.schemas import (
    Tenant,
    TenantCreate,
    TenantDetail,
    TenantList,
    TenantPatch,
    TenantSuspend,
)
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

router = APIRouter(
    prefix="/admin/v1",
    tags=["tenants"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


@router.get("/tenants", operation_id="list_tenants")
def list_tenants(request: Request) -> TenantList:
    with get_context(request).db.platform.read() as work:
        return TenantList(data=[Tenant.of(summary) for summary in service.list_tenants(work)])


@router.post("/tenants", operation_id="create_tenant", status_code=201)
def create_tenant(body: TenantCreate, request: Request) -> Tenant:
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        tenant = service.create_tenant(
            work,
            slug=body.slug,
            display_name=body.display_name,
            weight=body.weight,
            plan=body.plan,
            keys_make_keys=body.keys_make_keys,
            now=context.clock(),
        )
        return Tenant.of(service.TenantSummary(tenant, 0, 0))


@router.get("/tenants/{slug}", operation_id="get_tenant")
async def get_tenant(slug: str, request: Request) -> TenantDetail:
    """The tenant, and what it holds of the engine's memory."""
    context = get_context(request)
    summary = await run_in_threadpool(_summary, context, slug)
    return TenantDetail.with_memory(summary, await memory_of_tenant(context.engine_client, summary.tenant.id))


@router.patch("/tenants/{slug}", operation_id="update_tenant")
def update_tenant(slug: str, body: TenantPatch, request: Request) -> Tenant:
    """Change what is said in the body; requests from now on go by it."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        tenant = service.update_tenant(work, slug, body.change(), context.clock())
        return Tenant.of(service.summary_of(work, tenant))


@router.post("/tenants/{slug}/suspend", operation_id="suspend_tenant")
def suspend_tenant(slug: str, body: TenantSuspend, request: Request) -> Tenant:
    """Refuse the tenant's requests and end its running answers; nothing of it is deleted."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        tenant = service.suspend_tenant(work, slug, context.clock(), body.reason)
        return Tenant.of(service.summary_of(work, tenant))


@router.post("/tenants/{slug}/resume", operation_id="resume_tenant")
def resume_tenant(slug: str, request: Request) -> Tenant:
    """Serve a suspended tenant again."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        tenant = service.resume_tenant(work, slug, context.clock())
        return Tenant.of(service.summary_of(work, tenant))


def _summary(context: PlatformContext, slug: str) -> service.TenantSummary:
    with context.db.platform.read() as work:
        return service.summary_of(work, service.get_tenant(work, slug))
