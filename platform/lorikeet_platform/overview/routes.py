"""The overview on the administration port: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Request

from lorikeet_platform.accounts.access import Admin
from lorikeet_platform.overview.schemas import Overview
from lorikeet_platform.overview.service import OverviewReader
from lorikeet_platform.web.json_body import StrictJsonRoute

router = APIRouter(prefix="/admin/v1", tags=["overview"], route_class=StrictJsonRoute)


@router.get("/overview", operation_id="get_overview")
async def get_overview(_admin: Admin, request: Request) -> Overview:
    """Live figures; the engine's part is empty while no engine answers."""
    reader: OverviewReader = request.app.state.overview
    return await reader.read()
