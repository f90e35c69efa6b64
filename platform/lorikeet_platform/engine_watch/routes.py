"""The engine's page on the administration port: transport only."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from lorikeet_engine.client import EngineClient, EngineInfo
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.context import get_context
from lorikeet_platform.engine_watch.report import engine_report
from lorikeet_platform.engine_watch.schemas import EngineReport
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

router = APIRouter(
    prefix="/admin/v1",
    tags=["engine"],
    route_class=StrictJsonRoute,
    dependencies=[Depends(administrator), KnownQuery, WantedBody],
)


@router.get("/engine", operation_id="get_engine")
async def get_engine(request: Request) -> EngineReport:
    """What the engine was started with, and how it did in the last five minutes."""
    context = get_context(request)
    watch, settings = context.watch, context.settings
    report = partial(
        engine_report,
        _info(context.engine_client),
        watch.window(),
        watch.design,
        has_answered=watch.has_answered,
        name=settings.model_name,
        settings=settings.engine,
    )
    return await run_in_threadpool(report)


def _info(client: EngineClient) -> EngineInfo | None:
    try:
        return client.info
    except EngineUnavailable:
        return None
