"""Reads one overview: the engine's figures over its socket, names and counts from the database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Job, Tenant
from lorikeet_platform.fleet import count_live
from lorikeet_platform.overview.books import books_checked
from lorikeet_platform.overview.engine_view import Names, engine_overview
from lorikeet_platform.overview.schemas import BooksChecked, EngineOverview, EngineState, Overview
from lorikeet_platform.registry.catalogue import count_ready, names_by_digest
from lorikeet_platform.telemetry.limits import DEGRADED


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database says of the page."""

    names: Names
    n_ready: int
    n_jobs: int
    n_gateways: int
    books: BooksChecked | None


class OverviewReader:
    """Reads one overview at a time; remembers only whether the engine ever answered."""

    def __init__(self, context: PlatformContext) -> None:
        self._context = context
        self._has_answered = False

    async def read(self) -> Overview:
        stored = await run_in_threadpool(self._stored)
        return Overview(
            engine=await self._engine(stored.names),
            tenants=len(stored.names.slugs),
            adapters_ready=stored.n_ready,
            jobs_open=stored.n_jobs,
            gateways=stored.n_gateways,
            rates_degraded=bool(self._context.metrics_registry.get_sample_value(DEGRADED)),
            books=stored.books,
        )

    async def _engine(self, names: Names) -> EngineOverview:
        client, model = self._context.engine_client, self._context.settings.model_name
        try:
            info, stats = client.info, await client.stats(names_adapters=True)
        except EngineUnavailable:
            state: EngineState = "unavailable" if self._has_answered else "starting"
            return EngineOverview(state=state, model=model)
        self._has_answered = True
        return engine_overview(info, stats, names)

    def _stored(self) -> Stored:
        with self._context.db.platform.read() as session:
            slugs = {row.id: row.slug for row in session.execute(select(Tenant.id, Tenant.slug))}
            return Stored(
                names=Names(slugs, names_by_digest(session)),
                n_ready=count_ready(session),
                n_jobs=session.scalar(select(func.count()).where(Job.state.in_(("queued", "leased")))) or 0,
                n_gateways=count_live(session, self._context.clock()),
                books=books_checked(session),
            )
