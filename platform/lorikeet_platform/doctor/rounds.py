"""The doctor's rounds: after each of the watch's samples every rule is asked, and what they say is kept for readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from lorikeet_engine.client import EngineClient
from lorikeet_platform.clock import SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion, Tenant
from lorikeet_platform.doctor.catalogue import ENGINE_RULES, NAMES, examine
from lorikeet_platform.doctor.examined import Registered, Seen, Surroundings
from lorikeet_platform.doctor.metrics import FindingFigures
from lorikeet_platform.doctor.rules.installation import engine_away
from lorikeet_platform.doctor.schemas import Finding, Findings
from lorikeet_platform.doctor.steadiness import Steadiness
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.overview.books import books_checked
from lorikeet_platform.overview.engine_view import SHOWN_DIGEST
from lorikeet_platform.overview.schemas import BooksChecked
from lorikeet_platform.registry.catalogue import names_by_digest

log = structlog.get_logger(__name__)

LOOKED_AT_S: Final = 120.0
LEAST_S: Final = 15.0  # of a window, before any rule about the engine is asked


class Doctor:
    """Examines one engine; `findings` is the outcome of the last examination.

    Args:
        degraded: the gauge that is 1 while rates are counted alone.
        looked_at_s: how much of the engine's life a round looks at, and `least_s` how much there has to be.
    """

    def __init__(
        self,
        watch: EngineWatch,
        *,
        db: Database,
        client: EngineClient,
        degraded: Gauge,
        registry: CollectorRegistry,
        clock: Clock = now_us,
        looked_at_s: float = LOOKED_AT_S,
        least_s: float = LEAST_S,
    ) -> None:
        self.findings = Findings(examined_s=None, at=None, findings=[])
        self._watch, self._db, self._client, self._degraded, self._clock = watch, db, client, degraded, clock
        self._looked_at_s, self._least_s = looked_at_s, least_s
        self._began_s = clock() / SECOND
        self._steadiness, self._n_engines = Steadiness(), 0
        registry.register(FindingFigures(lambda: self.findings))
        watch.subscribe(self.examine)

    async def examine(self) -> None:
        """One round."""
        watch = self._watch
        if watch.n_engines != self._n_engines:
            self._n_engines = watch.n_engines
            self._steadiness.forget(ENGINE_RULES)
        window, design, prompts = watch.window(self._looked_at_s), watch.design, watch.prompts
        around = await run_in_threadpool(self._surroundings)
        seen = None
        if window is not None and design is not None and window.seconds >= self._least_s:
            seen = Seen(window, design, prompts, around)
        found = await run_in_threadpool(examine, around, seen)
        held = self._held(found)
        self.findings = Findings(
            examined_s=None if seen is None else seen.window.seconds,
            at=int(self._clock() / SECOND),
            findings=sorted(held, key=_order),
        )

    def _held(self, found: Mapping[str, Finding | None]) -> list[Finding]:
        """A short gap ends nothing; once the engine counts as away, nothing that was said of it is true any more."""
        held = self._steadiness.take(found)
        if all(finding.rule != engine_away.__name__ for finding in held):
            return held
        self._steadiness.forget(ENGINE_RULES)
        return [finding for finding in held if finding.rule not in ENGINE_RULES]

    def _surroundings(self) -> Surroundings:
        books = self._books()
        [degraded] = self._degraded.collect()
        return Surroundings(
            away_s=self._away_s(),
            has_answered=self._watch.has_answered,
            books_mismatches=None if books is None else books.mismatches,
            rates_degraded=bool(degraded.samples[0].value),
            names=StoredNames(self._db),
            registered=self._registered,
            decode=self._decode,
        )

    def _books(self) -> BooksChecked | None:
        """None, too, while the database is away: what is wrong with an engine can be said without it."""
        try:
            with self._db.platform.read() as session:
                return books_checked(session)
        except SQLAlchemyError as error:
            log.warning("the doctor cannot read the database", error=type(error).__name__)
            return None

    def _registered(self) -> Sequence[Registered]:
        """Nothing where they cannot be read."""
        version = AdapterVersion
        rows = select(version.tenant_id, version.adapter_id, version.digest, version.rank)
        with suppress(SQLAlchemyError), self._db.platform.read() as session:
            ready = session.execute(rows.where(version.state == "ready")).all()
            return [Registered(tenant, adapter, digest or "", rank) for tenant, adapter, digest, rank in ready]
        return ()

    def _away_s(self) -> float | None:
        watch = self._watch
        if not watch.is_away:
            return None
        since = watch.away_since if watch.has_answered else None
        return self._clock() / SECOND - (self._began_s if since is None else since)

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._client.tokenizer.decode(tokens)


class StoredNames:
    """Slugs, and `slug/name:version` of adapters; read from the database when a rule first names somebody.

    Ids where it cannot be read.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def tenant(self, tenant_id: str) -> str:
        return self._slugs.get(tenant_id, tenant_id)

    def adapter(self, tenant_id: str, digest: str) -> str:
        if not digest:
            return f"{self.tenant(tenant_id)} on the base model"
        return f"{self.tenant(tenant_id)}/{self._versions.get((tenant_id, digest), digest[:SHOWN_DIGEST])}"

    @cached_property
    def _slugs(self) -> dict[str, str]:
        with suppress(SQLAlchemyError), self._db.platform.read() as session:
            return {row.id: row.slug for row in session.execute(select(Tenant.id, Tenant.slug))}
        return {}

    @cached_property
    def _versions(self) -> dict[tuple[str, str], str]:
        with suppress(SQLAlchemyError), self._db.platform.read() as session:
            return names_by_digest(session)
        return {}


def _order(finding: Finding) -> tuple[bool, int]:
    return finding.severity != "critical", NAMES.index(finding.rule)
