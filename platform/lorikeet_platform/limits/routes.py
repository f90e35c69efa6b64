"""Plans and limits over HTTP: transport only. Limits of keys are with the keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.auth.actor import ADMINISTRATOR
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import get_context
from lorikeet_platform.db.tables import ApiKey, Tenant
from lorikeet_platform.limits import plans, service
from lorikeet_platform.limits.month import month_of
from lorikeet_platform.limits.schemas import Limits, LimitsPut, MonthUse, OwnLimits, Plan, PlanCreate, PlanList
from lorikeet_platform.registry.acting import Acting, acting_as, administrator_actor
from lorikeet_platform.web.access import Caller, tenant_key
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

PlanId = Annotated[str, Path(alias="id")]

own_router = APIRouter(
    prefix="/v1/limits",
    tags=["limits"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(tenant_key), KnownQuery, WantedBody],
)
tenant_router = APIRouter(
    prefix="/admin/v1/tenants/{slug}/limits",
    tags=["limits"],
    route_class=StrictJsonRoute,
    dependencies=[acting_as(administrator_actor), KnownQuery, WantedBody],
)
plans_router = APIRouter(
    prefix="/admin/v1/plans",
    tags=["plans"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


@own_router.get("", operation_id="get_own_limits")
@needs("usage:read")
def get_own_limits(caller: Caller, request: Request) -> OwnLimits:
    """What is in force for the calling key, who said so, and how much of the month's tokens is used."""
    context = get_context(request)
    with context.db.tenant(caller.tenant_id).read() as work:
        tenant = work.get_one(Tenant, caller.tenant_id)
        found = service.key_limits(work, tenant, work.get_one(ApiKey, (caller.tenant_id, caller.key_id)))
        month = month_of(work, tenant.id, caller.subject_id, found.effective, context.clock())
    return OwnLimits(limits=Limits.of(found).limits, month=MonthUse.of(month))


@tenant_router.get("", operation_id="get_tenant_limits")
def get_tenant_limits(actor: Acting, request: Request) -> Limits:
    """What is in force for the tenant as a whole, and who said so."""
    with get_context(request).db.tenant(actor.tenant_id).read() as work:
        return Limits.of(service.tenant_limits(work, work.get_one(Tenant, actor.tenant_id)))


@tenant_router.put("", operation_id="set_tenant_limits")
def set_tenant_limits(body: LimitsPut, actor: Acting, request: Request) -> Limits:
    """Set limits of the tenant as a whole; dimensions that are not named stay."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        tenant = service.set_tenant_limits(work, actor.tenant_id, body.changes, actor=actor.name, now=context.clock())
        return Limits.of(service.tenant_limits(work, tenant))


@plans_router.get("", operation_id="list_plans")
def list_plans(request: Request) -> PlanList:
    with get_context(request).db.platform.read() as work:
        return PlanList(data=[Plan.of(summary) for summary in plans.list_plans(work)])


@plans_router.post("", operation_id="create_plan", status_code=201)
def create_plan(body: PlanCreate, request: Request) -> Plan:
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        made = plans.create_plan(
            work, body.id, body.display_name, body.changes, actor=ADMINISTRATOR, now=context.clock()
        )
        return Plan.of(made)


@plans_router.get("/{id}", operation_id="get_plan")
def get_plan(plan_id: PlanId, request: Request) -> Plan:
    with get_context(request).db.platform.read() as work:
        return Plan.of(plans.get_plan(work, plan_id))


@plans_router.put("/{id}", operation_id="set_plan_limits")
def set_plan_limits(plan_id: PlanId, body: LimitsPut, request: Request) -> Plan:
    """Change a plan, and with it what its tenants may do; dimensions that are not named stay."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        return Plan.of(plans.set_plan_limits(work, plan_id, body.changes, actor=ADMINISTRATOR, now=context.clock()))
