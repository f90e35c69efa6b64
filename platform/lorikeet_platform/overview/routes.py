"""Overview and adapters on the administration port: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Request

from lorikeet_platform.accounts.access import Admin
from lorikeet_platform.context import get_context
from lorikeet_platform.overview.schemas import Overview
from lorikeet_platform.overview.service import OverviewReader
from lorikeet_platform.registry import catalogue
from lorikeet_platform.registry.schemas import Adapter, AdapterList
from lorikeet_platform.tenants.service import get_tenant
from lorikeet_platform.web.json_body import StrictJsonRoute

router = APIRouter(prefix="/admin/v1", tags=["overview"], route_class=StrictJsonRoute)


@router.get("/overview", operation_id="get_overview")
async def get_overview(_admin: Admin, request: Request) -> Overview:
    """Live figures; the engine's part is empty while no engine answers."""
    reader: OverviewReader = request.app.state.overview
    return await reader.read()


@router.get("/tenants/{slug}/adapters", operation_id="list_adapters")
def list_adapters(slug: str, _admin: Admin, request: Request) -> AdapterList:
    with get_context(request).db.read() as work:
        entries = catalogue.list_adapters(work, get_tenant(work, slug).id)
        return AdapterList(data=[Adapter.of(entry) for entry in entries])
