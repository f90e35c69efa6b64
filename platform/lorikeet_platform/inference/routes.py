"""The inference routes: transport only. `install` gives an application what they need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, cast

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.inference import models
from lorikeet_platform.inference.answers import AnswerWriter, ChatWriter, Heading, TextWriter
from lorikeet_platform.inference.schemas import Body, ChatRequest, CompletionRequest, parse
from lorikeet_platform.inference.service import Arrival, Call, InferenceService
from lorikeet_platform.inference.streaming import GenerationResponse
from lorikeet_platform.limits.gating.opening import open_gate
from lorikeet_platform.registry.versions.warming import take_out_damaged
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.web.access import Caller
from lorikeet_platform.web.errors import request_id_of
from lorikeet_platform.web.json_body import read_json

router = APIRouter(tags=["inference"])


@dataclass(frozen=True, slots=True)
class Inference:
    """What the routes of one application share."""

    service: InferenceService
    metrics: GatewayMetrics


@dataclass(frozen=True, slots=True)
class Visit:
    """A request before anything is known of its caller; `mark` is of that moment."""

    inference: Inference
    mark: int


def install(app: FastAPI, context: PlatformContext, metrics: GatewayMetrics) -> InferenceService:
    """Give `app` its inference routes; the service is returned for whoever drains it at shutdown."""
    service = InferenceService(
        db=context.db,
        usage=context.usage,
        client=context.engine_client,
        base_model=context.settings.model_name,
        gate=open_gate(context.settings.redis_url, metrics.limits, n_live=lambda: context.presence.live),
        metrics=metrics,
        on_damaged=partial(take_out_damaged, context),
        clock=context.clock,
    )
    app.state.inference = Inference(service, metrics)
    app.include_router(router)
    app.include_router(models.router)
    return service


async def get_visit(request: Request) -> Visit:  # async: the framework runs other functions in a thread
    inference = cast(Inference, request.app.state.inference)
    return Visit(inference, inference.service.mark())


# Handlers name it before their caller, and dependencies are met in that order: a caller whose right to be answered ends
# while his key is looked up has a mark from before.
Visited = Annotated[Visit, Depends(get_visit)]


@router.post(ChatRequest.ROUTE, operation_id="create_chat_completion")
@needs("inference")
async def create_chat_completion(request: Request, visit: Visited, caller: Caller) -> Response:
    """Answer a conversation, whole or as a stream."""
    arrival = Arrival(caller, request_id_of(request), visit.mark)
    body = await _read(request, visit.inference, arrival, ChatRequest)
    call = await visit.inference.service.prepare_chat(arrival, body)
    return _answer(visit.inference, call, ChatWriter(_heading(call), include_usage=call.include_usage))


@router.post(CompletionRequest.ROUTE, operation_id="create_completion")
@needs("inference")
async def create_completion(request: Request, visit: Visited, caller: Caller) -> Response:
    """Continue a text, whole or as a stream."""
    arrival = Arrival(caller, request_id_of(request), visit.mark)
    body = await _read(request, visit.inference, arrival, CompletionRequest)
    call = await visit.inference.service.prepare_completion(arrival, body)
    return _answer(visit.inference, call, TextWriter(_heading(call), include_usage=call.include_usage))


async def _read(request: Request, inference: Inference, arrival: Arrival, schema: type[Body]) -> Body:
    try:
        return parse(await read_json(request), schema)
    except PlatformError as refusal:
        await inference.service.refuse(arrival, refusal)
    except ClientDisconnect:
        await inference.service.count(arrival)
        raise


def _heading(call: Call) -> Heading:
    asked = call.generation
    return Heading(asked.request_id, call.created, call.resolved.model, call.fingerprint, asked.n)


def _answer(inference: Inference, call: Call, writer: AnswerWriter) -> GenerationResponse:
    return GenerationResponse(call=call, writer=writer, service=inference.service, metrics=inference.metrics)
