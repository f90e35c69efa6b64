"""Plans over HTTP: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.context import get_context
from lorikeet_platform.planning.schemas import CapacityPlan, PlanQuestion
from lorikeet_platform.planning.service import plan_for
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

router = APIRouter(
    prefix="/admin/v1",
    tags=["plan"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


@router.post("/plan", operation_id="plan_capacity")
async def plan_capacity(body: PlanQuestion, request: Request) -> CapacityPlan:
    """What a model on a device can carry. With `live`, questions beyond what the engine has done are refused."""
    context = get_context(request)
    return await plan_for(body, context.engine_client, context.watch)
