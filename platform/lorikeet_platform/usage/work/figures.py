"""What workers' rounds did to the ledger, for a gateway's /metrics: workers have none, their chores' rows have.

Every gateway shows the same of these; whoever adds gateways up takes the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Chore
from lorikeet_platform.telemetry.ledger import LedgerMetrics
from lorikeet_platform.usage.work import check, outbox, reaper
from lorikeet_platform.usage.work.totals import TOTAL

log = structlog.get_logger(__name__)

_ROUNDS: Final = (outbox.NAME, reaper.NAME, check.NAME)


def ledger_metrics(registry: CollectorRegistry, db: Database) -> LedgerMetrics:
    """A gateway's metrics of metering, together with those of the workers, on `registry`."""
    metrics = LedgerMetrics(registry)
    registry.register(LedgerFigures(db, metrics))
    return metrics


class LedgerFigures(Collector):
    """Asks the database at every scrape, for three rows; without it, what this gateway counted is still shown."""

    def __init__(self, db: Database, metrics: LedgerMetrics) -> None:
        self._db, self._metrics = db, metrics

    def describe(self) -> Iterable[Metric]:
        return ()  # or registering would ask the database

    def collect(self) -> Iterable[Metric]:
        rounds = self._rounds()
        drained, reaped = rounds.get(outbox.NAME, {}), rounds.get(reaper.NAME, {})
        [settled] = self._metrics.settled.collect()
        for settled_by, n in (("engine_outbox", _total(drained, "settled")), ("reaper", _total(reaped, "reaped"))):
            settled.add_sample(f"{settled.name}_total", {"settled_by": settled_by}, n)
        yield settled
        [conflicts] = self._metrics.conflicts.collect()
        own = sum(sample.value for sample in conflicts.samples if sample.name.endswith("_total"))
        theirs = _total(drained, "conflicts") + _total(reaped, "conflicts")
        yield CounterMetricFamily(conflicts.name, conflicts.documentation, value=own + theirs)
        yield CounterMetricFamily(
            "lorikeet_usage_reaped", "Usage records that had no owner.", value=_total(reaped, "reaped")
        )
        mismatch = GaugeMetricFamily(
            "lorikeet_ledger_mismatch", "Sums that the ledger's books did not agree on at the last check."
        )
        if (found := rounds.get(check.NAME)) is not None:
            mismatch.add_metric([], found.get("mismatches", 0))
        yield mismatch

    def _rounds(self) -> Mapping[str, Mapping[str, Any]]:
        try:
            with self._db.platform.read() as work:
                rows = work.execute(select(Chore.name, Chore.result).where(Chore.name.in_(_ROUNDS)))
                return {row[0]: row[1] for row in rows if row[1] is not None}
        except SQLAlchemyError as error:
            log.warning("the workers' figures are not shown", error=type(error).__name__)
            return {}


def _total(figures: Mapping[str, Any], name: str) -> int:
    return int(figures.get(f"{TOTAL}{name}", 0))
