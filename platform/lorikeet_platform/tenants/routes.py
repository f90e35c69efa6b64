"""Tenants on the administration port: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from lorikeet_platform.accounts.access import Admin
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import get_context
from lorikeet_platform.tenants import service
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.listing import Listing

router = APIRouter(prefix="/admin/v1", tags=["tenants"], route_class=StrictJsonRoute)


class TenantCreate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    slug: str = Field(pattern=service.SLUG_PATTERN, description="3 to 40 of a-z 0-9 -, never changed later")
    display_name: str | None = Field(default=None, min_length=1, max_length=200)
    weight: float = Field(
        default=1.0,
        gt=0,
        le=service.MAX_WEIGHT,
        allow_inf_nan=False,
        strict=True,
        description="share of the engine under load, relative to other tenants",
    )


class Tenant(BaseModel):
    id: str
    slug: str
    display_name: str
    status: str
    weight: float
    created_at: int
    adapters: int
    keys: int

    @classmethod
    def of(cls, summary: service.TenantSummary) -> Tenant:
        tenant = summary.tenant
        return cls(
            id=tenant.id,
            slug=tenant.slug,
            display_name=tenant.display_name,
            status=tenant.status,
            weight=tenant.weight,
            created_at=unix_seconds(tenant.created_at),
            adapters=summary.n_adapters,
            keys=summary.n_keys,
        )


class TenantList(Listing[Tenant]):
    pass


@router.get("/tenants", operation_id="list_tenants")
def list_tenants(_admin: Admin, request: Request) -> TenantList:
    with get_context(request).db.platform.read() as work:
        return TenantList(data=[Tenant.of(summary) for summary in service.list_tenants(work)])


@router.post("/tenants", operation_id="create_tenant", status_code=201)
def create_tenant(body: TenantCreate, _admin: Admin, request: Request) -> Tenant:
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        tenant = service.create_tenant(
            work, slug=body.slug, display_name=body.display_name, weight=body.weight, now=context.clock()
        )
        return Tenant.of(service.TenantSummary(tenant, 0, 0))
