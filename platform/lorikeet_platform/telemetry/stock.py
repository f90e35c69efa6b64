"""How much work lies in the database, for a gateway's /metrics: jobs, uploads.

Every gateway shows the same; whoever adds gateways up takes the largest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_platform.clock import SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Job, Upload

OPEN_STATES: Final = ("queued", "leased", "failed")

log = structlog.get_logger(__name__)


class StockFigures(Collector):
    """Asks the database at every scrape; without it there is nothing to show."""

    def __init__(self, db: Database, clock: Clock = now_us) -> None:
        self._db, self._clock = db, clock

    def describe(self) -> Iterable[Metric]:
        return ()  # or registering would ask the database

    def collect(self) -> Iterable[Metric]:
        jobs = GaugeMetricFamily("lorikeet_jobs", "Jobs that are not done.", labels=["kind", "state"])
        ages = GaugeMetricFamily(
            "lorikeet_job_age_seconds", "How long the oldest job has waited that may run.", labels=["kind"]
        )
        uploads = GaugeMetricFamily("lorikeet_uploads_open", "Uploads that are not complete.")
        try:
            self._count(jobs, ages, uploads)
        except SQLAlchemyError as error:
            log.warning("the stock of work is not shown", error=type(error).__name__)
        yield from (jobs, ages, uploads)

    def _count(self, jobs: GaugeMetricFamily, ages: GaugeMetricFamily, uploads: GaugeMetricFamily) -> None:
        now = self._clock()
        by_state = select(Job.kind, Job.state, func.count()).where(Job.state.in_(OPEN_STATES))
        oldest = select(Job.kind, func.min(Job.run_after)).where(Job.state == "queued", Job.run_after <= now)
        n_open = select(func.count()).select_from(Upload).where(Upload.state == "open")
        with self._db.platform.read() as work:
            for kind, state, n in work.execute(by_state.group_by(Job.kind, Job.state)):
                jobs.add_metric([kind, state], n)
            for kind, since in work.execute(oldest.group_by(Job.kind)):
                ages.add_metric([kind], (now - since) / SECOND)
            uploads.add_metric([], work.scalar(n_open) or 0)
