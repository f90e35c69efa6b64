"""The metrics of metering that one gateway counts itself; those of workers' rounds are `usage.work.figures`."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SETTLE_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class LedgerMetrics:
    """`settled` and `conflicts` are shown together with what workers settled, and registered nowhere themselves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.open = Gauge(
            "lorikeet_usage_open",
            "Usage records that this gateway opened and has not seen settled.",
            registry=registry,
        )
        self.settle_lag_seconds = Histogram(
            "lorikeet_usage_settle_lag_seconds",
            "From a request's end until its use was on record.",
            registry=registry,
            buckets=SETTLE_SECONDS,
        )
        self.refusals = Counter(
            "lorikeet_budget_refusals",
            "Requests refused because a month's tokens were used up.",
            registry=registry,
        )
        self.settled = Counter(
            "lorikeet_usage_settled", "Usage records settled, by whom.", ["settled_by"], registry=None
        )
        self.conflicts = Counter(
            "lorikeet_usage_conflict",
            "Settlements that said something else than the one that came first; they changed nothing.",
            registry=None,
        )
