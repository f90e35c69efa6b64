"""Liveness, readiness and metrics. Live = the process answers; ready = a request would be served."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from lorikeet_platform.context import get_context
from lorikeet_platform.web.access import Public

router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"])


class Live(BaseModel):
    status: Literal["live"] = "live"


class Ready(BaseModel):
    """`reasons` is empty when ready."""

    status: Literal["ready", "unavailable"]
    reasons: list[Literal["db_unavailable", "engine_unavailable"]]


@router.get("/livez", operation_id="livez", dependencies=[Public])
async def livez() -> Live:
    return Live()


@router.get("/readyz", operation_id="readyz", dependencies=[Public], responses={503: {"model": Ready}})
async def readyz(request: Request, response: Response) -> Ready:
    context = get_context(request)
    ready = Ready(status="ready", reasons=[])
    if not await run_in_threadpool(context.db.is_reachable):
        ready.reasons.append("db_unavailable")
    if not context.engine_client.ready:
        ready.reasons.append("engine_unavailable")
    if ready.reasons:
        ready.status, response.status_code = "unavailable", 503
    return ready


@metrics_router.get("/metrics", operation_id="metrics", dependencies=[Public], include_in_schema=False)
def metrics(request: Request) -> Response:
    """Prometheus text; only on the administration port."""
    return Response(generate_latest(get_context(request).metrics_registry), media_type=CONTENT_TYPE_LATEST)
