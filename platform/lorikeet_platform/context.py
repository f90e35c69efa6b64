"""What the HTTP applications are built from. Made by a composition root; routes reach it through `get_context`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from fastapi import Request
from prometheus_client import CollectorRegistry

from lorikeet_adapters.store.blob import BlobStore
from lorikeet_engine.client import EngineClient
from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import NoticeBoard
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.doctor.rounds import Doctor
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.fleet import GatewayPresence
from lorikeet_platform.limits.gating.turnstile import Turnstile
from lorikeet_platform.settings import Settings
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.telemetry.tracing.tracer import Tracer, Untraced
from lorikeet_platform.usage.service import UsageService


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformContext:
    """Everything a route may need.

    Attributes:
        watch: the engine's figures over time; it samples while the tenant application runs.
        doctor: what is wrong with the engine, by the watch's samples.
        notices: what other processes change of keys and tenants; it listens while the tenant application runs.
        presence: this gateway among the others; its row and its thread begin with the tenant application.
        wake: tells a worker about a job id; may fail silently, the sweeper sends again.
        metrics: the gateway's metrics, registered on `metrics_registry`, which /metrics shows.
        tracer: where traces of requests go; it ends with the tenant application.
        turnstile: where a tenant's requests pass that ask no model.
        admin_token: what the administrator's CLI sends on the administration port.
    """

    settings: Settings
    db: Database
    store: BlobStore
    engine_client: EngineClient
    watch: EngineWatch
    doctor: Doctor
    notices: NoticeBoard
    authenticator: Authenticator
    pepper: Pepper
    usage: UsageService
    presence: GatewayPresence
    wake: Callable[[str], None]
    admin_token: str
    metrics_registry: CollectorRegistry
    metrics: GatewayMetrics
    tracer: Tracer = field(default_factory=Untraced)
    clock: Clock = now_us
    turnstile: Turnstile = field(default_factory=Turnstile)

    @property
    def gateway_id(self) -> str:
        return self.presence.gateway_id


def get_context(request: Request) -> PlatformContext:
    return cast(PlatformContext, request.app.state.context)
