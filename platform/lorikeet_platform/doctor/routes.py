"""The doctor's findings on the administration port: transport only."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.context import get_context
from lorikeet_platform.doctor.schemas import Findings
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

router = APIRouter(
    prefix="/admin/v1",
    tags=["doctor"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


@router.get("/findings", operation_id="get_findings")
async def get_findings(request: Request) -> Findings:
    """What is wrong with the engine now, with evidence and remedy."""
    return get_context(request).doctor.findings
