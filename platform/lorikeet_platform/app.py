"""The gateway's two applications and what they are built from: one of the platform's composition roots.

    create_tenant_app   port 8000: inference and self-service, by API key
    create_admin_app    port 8001: administration and dashboard, by session or the machine's token

Admin routes do not exist on the tenant port. Both may share one context, and then one process's caches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_admin_ui import static_dir
from lorikeet_engine.client import EngineClient
from lorikeet_platform.accounts.admin_token import load_admin_token
from lorikeet_platform.accounts.routes import router as sign_in_router
from lorikeet_platform.api_keys.routes import key_routes, leak_router, own_key_routes
from lorikeet_platform.audit.routes import all_audit_routes, audit_routes
from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import NoticeBoard
from lorikeet_platform.auth.pepper import load_pepper
from lorikeet_platform.companions import companions, end_what_runs
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.doctor.rounds import Doctor
from lorikeet_platform.doctor.routes import router as doctor_router
from lorikeet_platform.engine_watch.routes import router as engine_router
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.fleet import GatewayPresence
from lorikeet_platform.inference.routes import install as install_inference
from lorikeet_platform.jobs.celery_app import Waker
from lorikeet_platform.jobs.routes import router as jobs_router
from lorikeet_platform.limits.routes import own_router as own_limits_router
from lorikeet_platform.limits.routes import plans_router
from lorikeet_platform.limits.routes import tenant_router as tenant_limits_router
from lorikeet_platform.overview.routes import router as overview_router
from lorikeet_platform.overview.service import OverviewReader
from lorikeet_platform.planning.routes import router as plan_router
from lorikeet_platform.registry.acting import administrator_actor, tenant_actor
from lorikeet_platform.registry.routes import adapter_routes, quarantine_routes
from lorikeet_platform.registry.uploads.routes import large_bodies, upload_routes
from lorikeet_platform.settings import Settings
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.telemetry.requests import ObservedRequests
from lorikeet_platform.telemetry.stock import StockFigures
from lorikeet_platform.telemetry.tracing.tracer import open_tracer
from lorikeet_platform.tenants.routes import router as tenants_router
from lorikeet_platform.usage.routes import all_usage_routes, usage_routes
from lorikeet_platform.usage.service import UsageService
from lorikeet_platform.usage.work.figures import ledger_metrics
from lorikeet_platform.web.access import check_access_is_declared
from lorikeet_platform.web.errors import Error, install_error_rendering
from lorikeet_platform.web.guards import Bounds, Guard
from lorikeet_platform.web.health import metrics_router
from lorikeet_platform.web.health import router as health_router
from lorikeet_platform.web.pages import HSTS, SECURITY_HEADERS, pages_router
from lorikeet_platform.web.places import PlacesGivenBack

__all__ = ["PlatformContext", "build_context", "create_admin_app", "create_tenant_app"]

VERSION = "0.1.0"
# Under both lie the same routes of a tenant's adapters and uploads.
TENANT_PREFIX, ADMIN_PREFIX = "/v1", "/admin/v1/tenants/{slug}"


def build_context(
    settings: Settings, *, db: Database, store: BlobStore, engine_client: EngineClient, wake: Waker
) -> PlatformContext:
    """A context with everything that follows from the settings: secrets made at the first start, metrics, services."""
    pepper, registry = load_pepper(settings.data_dir), CollectorRegistry()
    metrics = GatewayMetrics(registry)
    registry.register(StockFigures(db))
    notices = NoticeBoard(db, on_late=metrics.revocation_seconds.observe)
    presence, watch = GatewayPresence(db), EngineWatch(engine_client)
    return PlatformContext(
        settings=settings,
        db=db,
        store=store,
        engine_client=engine_client,
        watch=watch,
        doctor=Doctor(watch, db=db, client=engine_client, degraded=metrics.limits.degraded, registry=registry),
        notices=notices,
        authenticator=Authenticator(db, pepper, notices),
        pepper=pepper,
        usage=UsageService(db, gateway_id=presence.gateway_id, metrics=ledger_metrics(registry, db)),
        presence=presence,
        wake=wake,
        admin_token=load_admin_token(settings.data_dir),
        metrics_registry=registry,
        metrics=metrics,
        tracer=open_tracer(settings.tracing, settings.trusted_proxies),
    )


def create_tenant_app(context: PlatformContext, extra_routers: Sequence[APIRouter] = ()) -> FastAPI:
    """The tenant API. Its inference service is `app.state.inference.service`, to be drained before the server stops."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with companions(context, inference):
            yield

    app = _new_app("Lorikeet API", context, lifespan=lifespan)
    inference = install_inference(app, context, context.metrics)
    context.notices.subscribe(partial(end_what_runs, inference))
    adapters = adapter_routes(TENANT_PREFIX, tenant_actor)
    uploads = upload_routes(TENANT_PREFIX, tenant_actor)
    usage = usage_routes(TENANT_PREFIX, tenant_actor)
    audit = audit_routes(TENANT_PREFIX, tenant_actor)
    keys = (own_key_routes(TENANT_PREFIX), key_routes(TENANT_PREFIX, tenant_actor))
    for router in (adapters, uploads, usage, audit, own_limits_router, *keys, health_router, *extra_routers):
        app.include_router(router)
    check_access_is_declared(app.routes)
    app.add_middleware(PlacesGivenBack)
    app.add_middleware(Guard, bounds=Bounds(context.settings.limits, uploads=large_bodies(TENANT_PREFIX)))
    app.add_middleware(
        ObservedRequests, metrics=context.metrics, tracer=context.tracer
    )  # outermost: it counts what the guard refuses
    return app


def create_admin_app(context: PlatformContext) -> FastAPI:
    """The admin API, health, metrics, and the dashboard's pages under every other address."""
    app = _new_app("Lorikeet admin API", context)
    app.state.overview = OverviewReader(context)
    adapters = adapter_routes(ADMIN_PREFIX, administrator_actor)
    quarantine = quarantine_routes(ADMIN_PREFIX, administrator_actor)
    for router in (
        sign_in_router,
        overview_router,
        engine_router,
        doctor_router,
        plan_router,
        jobs_router,
        tenants_router,
        tenant_limits_router,
        plans_router,
        key_routes(ADMIN_PREFIX, administrator_actor),
        leak_router,
        adapters,
        quarantine,
        upload_routes(ADMIN_PREFIX, administrator_actor),
        usage_routes(ADMIN_PREFIX, administrator_actor),
        all_usage_routes(),
        audit_routes(ADMIN_PREFIX, administrator_actor),
        all_audit_routes(),
        health_router,
        metrics_router,
    ):
        app.include_router(router)
    app.include_router(pages_router(static_dir()))
    check_access_is_declared(app.routes)
    headers = SECURITY_HEADERS | (HSTS if context.settings.admin_cookie_secure else {})
    bounds = Bounds(context.settings.limits, uploads=large_bodies(ADMIN_PREFIX), answer_headers=headers)
    app.add_middleware(Guard, bounds=bounds)
    app.add_middleware(
        ObservedRequests, metrics=context.metrics, tracer=context.tracer
    )  # outermost: it counts what the guard refuses
    return app


def _new_app(title: str, context: PlatformContext, **options: Any) -> FastAPI:
    # No documentation pages: they load scripts from elsewhere. `python -m lorikeet_platform.openapi` prints the schema.
    app = FastAPI(
        title=title,
        version=VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": {"model": Error, "description": "Every refusal and failure"}},
        **options,
    )
    app.state.context = context
    install_error_rendering(app)
    app.openapi = lambda: openapi_of(app)  # type: ignore[method-assign]
    return app


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The schema without the framework's 422: validation answers 400 in the common shape."""
    schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for path in schema["paths"].values():
        for operation in path.values():
            operation.get("responses", {}).pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema.get("components", {}).get("schemas", {}).pop(name, None)
    return schema
