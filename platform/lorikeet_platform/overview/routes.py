"""The overview on the administration port: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.overview.schemas import Overview
from lorikeet_platform.overview.service import OverviewReader
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

router = APIRouter(
    prefix="/admin/v1",
    tags=["overview"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


@router.get("/overview", operation_id="get_overview")
async def get_overview(request: Request) -> Overview:
    """Live figures; the engine's part is empty while no engine answers."""
    reader: OverviewReader = request.app.state.overview
    return await reader.read()
