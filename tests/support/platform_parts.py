"""A platform without its edges: real database, store and secrets in a temporary folder, a scripted engine."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry
from sqlalchemy.orm import Session

from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.client import EngineDesign, EngineStats, PromptHeads, Steps
from lorikeet_platform.accounts.admin_token import load_admin_token
from lorikeet_platform.api_keys.service import create_key
from lorikeet_platform.auth.actor import SYSTEM
from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import NoticeBoard
from lorikeet_platform.auth.pepper import load_pepper
from lorikeet_platform.clock import now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, AdapterVersion, KeyLimit, TenantLimit
from lorikeet_platform.doctor.rounds import Doctor
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.fleet import GatewayPresence
from lorikeet_platform.ids import new_id
from lorikeet_platform.registry.aliasing.aliases import Change, point_wholly_at
from lorikeet_platform.registry.names import DEFAULT_ALIAS
from lorikeet_platform.settings import LimitSettings, Settings
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.tenants.service import create_tenant
from lorikeet_platform.usage.service import UsageService
from tests.support.engine_figures import engine_design, engine_stats
from tests.support.scripted_engine import ScriptedEngine

BASE = "tiny-llama"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
WITH_CONTENT = ("ready", "retired", "quarantined", "purged")  # states that only a verdict can have led to
TUS = {"tus-resumable": "1.0.0"}
SLICE = {"content-type": "application/offset+octet-stream"}


@dataclass
class FakeClock:
    """Time that stands still until a test moves it."""

    now: int = field(default_factory=now_us)

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@dataclass
class MeasuredEngine(ScriptedEngine):
    """The scripted engine with figures to show."""

    figures: dict[str, Any] = field(default_factory=dict)

    async def stats(self, *, names_adapters: bool = False) -> EngineStats:
        self.info  # noqa: B018 (raises when the engine is down)
        stats = engine_stats(**self.figures)
        return stats if names_adapters else msgspec.structs.replace(stats, adapters=[])

    async def steps(self, after_s: float = float("-inf")) -> Steps:  # noqa: ARG002
        self.info  # noqa: B018
        return Steps(0, 0.0, [])

    async def prompts(self) -> list[PromptHeads]:
        self.info  # noqa: B018
        return []

    async def design(self) -> EngineDesign:
        self.info  # noqa: B018
        return engine_design()


def make_context(folder: Path, db: Database, clock: Callable[[], int], **limits: Any) -> PlatformContext:
    settings = Settings(data_dir=folder, model_name=BASE, limits=LimitSettings(**limits))
    pepper, registry = load_pepper(folder), CollectorRegistry()
    notices, engine, metrics = NoticeBoard(db, clock=clock), MeasuredEngine(), GatewayMetrics(registry)
    watch = EngineWatch(engine, clock)
    return PlatformContext(
        settings=settings,
        db=db,
        store=LocalBlobStore(settings.blob_dir),
        engine_client=engine,
        watch=watch,
        doctor=Doctor(watch, db=db, client=engine, degraded=metrics.limits.degraded, registry=registry, clock=clock),
        notices=notices,
        authenticator=Authenticator(db, pepper, notices, clock=clock),
        pepper=pepper,
        usage=UsageService(db, clock=clock),
        presence=GatewayPresence(db, clock=clock),
        wake=lambda _job_id: None,
        admin_token=load_admin_token(folder),
        metrics_registry=registry,
        metrics=metrics,
        clock=clock,
    )


@dataclass(frozen=True)
class Tenant:
    """A tenant with one key, as tests need it."""

    id: str
    slug: str
    key_id: str
    secret: str

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


def a_tenant(context: PlatformContext, slug: str) -> Tenant:
    with context.db.platform.unit_of_work() as work:
        tenant = create_tenant(work, slug=slug, display_name=None, now=context.clock())
        key, secret = create_key(work, context.pepper, tenant_id=tenant.id, name="first", now=context.clock())
        return Tenant(tenant.id, slug, key.id, secret)


def limit_tenant(db: Database, tenant_id: str, **values: int | tuple[int, int]) -> None:
    """Limits of the tenant's own, by dimension: a value, or value and burst."""
    with db.platform.unit_of_work() as work:
        for dimension, figures in values.items():
            value, burst = figures if isinstance(figures, tuple) else (figures, None)
            limit = TenantLimit(tenant_id=tenant_id, dimension=dimension, value=value, burst=burst)
            limit.updated_by, limit.updated_at = SYSTEM, now_us()
            work.merge(limit)


def limit_key(db: Database, tenant_id: str, key_id: str, **values: int | tuple[int, int]) -> None:
    """Limits of a key that was never rotated, by dimension: a value, or value and burst."""
    with db.platform.unit_of_work() as work:
        for dimension, figures in values.items():
            value, burst = figures if isinstance(figures, tuple) else (figures, None)
            limit = KeyLimit(tenant_id=tenant_id, subject_id=key_id, dimension=dimension, value=value, burst=burst)
            limit.updated_by, limit.updated_at = SYSTEM, now_us()
            work.merge(limit)


def a_version(
    work: Session, tenant: Tenant, *, name: str, number: int = 1, state: str = "ready", live: bool = True
) -> AdapterVersion:
    """A version row, with its adapter when that is missing; `live` points at it when it is ready."""
    now = now_us()
    adapter = work.query(Adapter).filter_by(tenant_id=tenant.id, name=name).one_or_none()
    if adapter is None:
        adapter = Adapter(
            tenant_id=tenant.id, id=new_id("adp"), name=name, base_model=BASE, next_version=1, created_at=now
        )
        work.add(adapter)
        work.flush()
    adapter.next_version = max(adapter.next_version, number + 1)
    version = AdapterVersion(
        tenant_id=tenant.id,
        id=new_id("ver"),
        adapter_id=adapter.id,
        number=number,
        state=state,
        state_rev=0,
        digest=hashlib.sha256(f"{name}{number}".encode()).hexdigest() if state in WITH_CONTENT else None,
        reject_code="config_invalid" if state == "rejected" else None,
        bytes=10,
        target_modules=[],
        warnings=[],
        created_by=tenant.key_id,
        created_at=now,
        ready_at=now if state in WITH_CONTENT else None,
    )
    work.add(version)
    work.flush()
    if state == "ready" and live:
        point_wholly_at(work, version, DEFAULT_ALIAS, Change(actor=SYSTEM, now=now))
    return version


@dataclass(frozen=True)
class Uploader:
    """A tus client of one tenant, as plain as the protocol."""

    client: TestClient
    tenant: Tenant

    def create(
        self, content: bytes, *, adapter: str = "pirate", filename: str = WEIGHTS, **changes: str
    ) -> httpx2.Response:
        metadata = {"adapter": adapter, "filename": filename, "sha256": hashlib.sha256(content).hexdigest()} | changes
        return self.client.post(
            "/v1/uploads",
            headers={
                **self.tenant.auth,
                **TUS,
                "upload-length": str(len(content)),
                "upload-metadata": encode_metadata(metadata),
            },
        )

    def append(self, location: str, offset: int, content: bytes, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {**self.tenant.auth, **TUS, **SLICE, "upload-offset": str(offset), **named}
        return self.client.patch(location, content=content, headers=sent)

    def offset(self, location: str) -> int:
        response = self.client.head(location, headers={**self.tenant.auth, **TUS})
        assert response.status_code == 200, response.text
        return int(response.headers["upload-offset"])

    def whole(self, content: bytes, *, filename: str = WEIGHTS, adapter: str = "pirate") -> str:
        """Upload in one slice; returns the upload's id."""
        location = self.create(content, adapter=adapter, filename=filename).headers["location"]
        assert self.append(location, 0, content).status_code == 204
        return location.rpartition("/")[2]

    def seal(self, config: bytes, weights: bytes, *, adapter: str = "pirate", **fields: Any) -> httpx2.Response:
        uploads = {
            CONFIG: self.whole(config, filename=CONFIG, adapter=adapter),
            WEIGHTS: self.whole(weights, filename=WEIGHTS, adapter=adapter),
        }
        return self.seal_uploads(uploads, adapter=adapter, **fields)

    def seal_uploads(self, uploads: Mapping[str, str], *, adapter: str = "pirate", **fields: Any) -> httpx2.Response:
        return self.client.post(
            f"/v1/adapters/{adapter}/versions", json={"files": dict(uploads), **fields}, headers=self.tenant.auth
        )


def encode_metadata(metadata: Mapping[str, str]) -> str:
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in metadata.items())


def checksum(algorithm: str, content: bytes) -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, content).digest()).decode()}"
