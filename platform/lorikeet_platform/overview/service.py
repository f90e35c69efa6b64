"""Joins what the engine knows (ids, digests, bytes) with what people call these things."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from lorikeet_engine.client import EngineInfo, EngineStats
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Job, Tenant
from lorikeet_platform.overview.schemas import (
    EngineOverview,
    EngineState,
    Ledger,
    Overview,
    ResidentAdapter,
    TenantBytes,
)
from lorikeet_platform.registry.catalogue import count_ready, names_by_digest

SHOWN_DIGEST = 12  # characters, where a digest has no name


@dataclass(frozen=True, slots=True)
class Names:
    """Slugs by tenant id, `name:number` by (tenant id, digest), and the counts of the page."""

    slugs: dict[str, str]
    versions: dict[tuple[str, str], str]
    n_ready: int
    n_jobs: int

    def slug(self, tenant_id: str) -> str:
        return self.slugs.get(tenant_id, tenant_id)


class OverviewReader:
    """Reads one overview at a time; remembers only whether the engine ever answered."""

    def __init__(self, context: PlatformContext) -> None:
        self._context = context
        self._has_answered = False

    async def read(self) -> Overview:
        names = await run_in_threadpool(self._names)
        return Overview(
            engine=await self._engine(names),
            tenants=len(names.slugs),
            adapters_ready=names.n_ready,
            jobs_open=names.n_jobs,
        )

    async def _engine(self, names: Names) -> EngineOverview:
        client, model = self._context.engine_client, self._context.settings.model_name
        try:
            info, stats = client.info, await client.stats()
        except EngineUnavailable:
            state: EngineState = "unavailable" if self._has_answered else "starting"
            return EngineOverview(state=state, model=model)
        self._has_answered = True
        return engine_overview(info, stats, names)

    def _names(self) -> Names:
        with self._context.db.read() as session:
            return Names(
                slugs={row.id: row.slug for row in session.execute(select(Tenant.id, Tenant.slug))},
                versions=names_by_digest(session),
                n_ready=count_ready(session),
                n_jobs=session.scalar(select(func.count()).where(Job.state.in_(("queued", "leased")))) or 0,
            )


def engine_overview(info: EngineInfo, stats: EngineStats, names: Names) -> EngineOverview:
    return EngineOverview(
        state="ready",
        model=info.model_name,
        device=info.device,
        dtype=info.dtype,
        max_model_len=info.max_model_len,
        uptime_s=stats.uptime_s,
        running=stats.running,
        waiting=stats.waiting,
        tokens_per_second=stats.tokens_per_second,
        prompt_tokens_total=stats.prompt_tokens_total,
        generated_tokens_total=stats.generated_tokens_total,
        steps_total=stats.steps_total,
        kv=_ledger(stats.kv, names),
        arena=_ledger(stats.arena, names),
        adapters=[
            ResidentAdapter(
                tenant=names.slug(resident.tenant),
                adapter=names.versions.get((resident.tenant, resident.digest), resident.digest[:SHOWN_DIGEST]),
                digest=resident.digest,
                state=resident.state,
                bytes=resident.bytes,
                requests=resident.requests,
            )
            for resident in stats.adapters
        ],
    )


def _ledger(snapshot: LedgerSnapshot, names: Names) -> Ledger:
    return Ledger(
        name=snapshot.name,
        capacity=snapshot.capacity,
        used=snapshot.used,
        reserved=snapshot.reserved,
        in_flight=snapshot.in_flight,
        cached=snapshot.cached,
        free=snapshot.free,
        fragmentation=snapshot.fragmentation,
        by_tenant=[TenantBytes(tenant=names.slug(key), bytes=n) for key, n in sorted(snapshot.by_tenant.items())],
    )
