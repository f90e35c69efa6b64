"""A gateway on a scripted engine: two tenants, a key each, an adapter each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.types import ASGIApp

from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_platform.api_keys.service import create_key
from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import NoticeBoard
from lorikeet_platform.auth.pepper import load_pepper
from lorikeet_platform.clock import now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, AdapterVersion, UsageRecord
from lorikeet_platform.doctor.rounds import Doctor
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.fleet import GatewayPresence
from lorikeet_platform.ids import new_id
from lorikeet_platform.inference.routes import install
from lorikeet_platform.inference.service import InferenceService
from lorikeet_platform.registry.aliasing.aliases import Change, point_wholly_at
from lorikeet_platform.settings import Settings
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.tenants.service import create_tenant
from lorikeet_platform.usage.service import UsageService
from lorikeet_platform.web.errors import install_error_rendering
from lorikeet_platform.web.guards import Bounds, Guard
from tests.support.scripted_engine import ScriptedEngine
from tests.support.tables import make_tables

BASE = "tiny"
CHAT = {"model": BASE, "messages": [{"role": "user", "content": "one two three"}]}


@dataclass
class Gateway:
    """The application and what a test looks at."""

    app: ASGIApp
    db: Database
    engine: ScriptedEngine
    service: InferenceService
    registry: CollectorRegistry
    keys: dict[str, str] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)  # ids by slug
    key_ids: dict[str, str] = field(default_factory=dict)

    def post(
        self, body: object, *, path: str = "/v1/chat/completions", tenant: str = "harbour", **headers: str
    ) -> httpx.Response:
        """`body` as JSON, or as it is when it is text or pieces."""
        content = body if isinstance(body, str | AsyncIterator) else json.dumps(body)
        sent = {"authorization": f"Bearer {self.keys[tenant]}", "content-type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self._send("POST", path, content=content, headers=sent)

    def get(self, path: str, *, tenant: str = "harbour") -> httpx.Response:
        return self._send("GET", path, headers={"authorization": f"Bearer {self.keys[tenant]}"})

    def usage(self) -> list[UsageRecord]:
        with self.db.platform.read() as session:
            return list(session.scalars(select(UsageRecord).order_by(UsageRecord.admitted_at)))

    def metrics(self) -> str:
        return generate_latest(self.registry).decode()

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    settings = Settings(data_dir=tmp_path, model_name=BASE)
    db = Database(settings.resolved_database_url)
    make_tables(db)
    pepper = load_pepper(tmp_path)
    engine, registry, notices = ScriptedEngine(), CollectorRegistry(), NoticeBoard(db)
    metrics, watch = GatewayMetrics(registry), EngineWatch(engine)
    context = PlatformContext(
        settings=settings,
        db=db,
        store=LocalBlobStore(tmp_path / "blobs"),
        engine_client=engine,
        watch=watch,
        doctor=Doctor(watch, db=db, client=engine, degraded=metrics.limits.degraded, registry=registry),
        notices=notices,
        authenticator=Authenticator(db, pepper, notices),
        pepper=pepper,
        usage=UsageService(db),
        presence=GatewayPresence(db),
        wake=lambda _job: None,
        admin_token="",
        metrics_registry=registry,
        metrics=metrics,
    )
    app = FastAPI()
    app.state.context = context
    service = install(app, context, context.metrics)
    install_error_rendering(app)
    gateway = Gateway(Guard(app, Bounds(settings.limits)), db, engine, service, registry)
    with db.platform.unit_of_work() as work:
        for slug, adapter in (("harbour", "pirate"), ("orchard", "haiku")):
            tenant = create_tenant(work, slug=slug, display_name=None, now=now_us())
            key, secret = create_key(work, pepper, tenant_id=tenant.id, name="tests", now=now_us())
            gateway.keys[slug], gateway.tenants[slug], gateway.key_ids[slug] = secret, tenant.id, key.id
            add_ready_adapter(work, tenant_id=tenant.id, name=adapter, key_id=key.id)
    yield gateway
    db.close()


def add_ready_adapter(work: Session, *, tenant_id: str, name: str, key_id: str) -> None:
    adapter = Adapter(tenant_id=tenant_id, id=new_id("adp"), name=name, base_model=BASE, created_at=now_us())
    version = AdapterVersion(
        tenant_id=tenant_id,
        id=new_id("ver"),
        adapter_id=adapter.id,
        number=1,
        state="ready",
        digest=(name * 64)[:64],
        bytes=1,
        created_by=key_id,
        created_at=now_us(),
        ready_at=now_us(),
    )
    work.add(adapter)
    work.flush()
    work.add(version)
    work.flush()
    point_wholly_at(work, version, "live", Change(actor=SYSTEM, now=now_us()))
