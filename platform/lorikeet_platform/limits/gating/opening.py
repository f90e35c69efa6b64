"""The gate that the settings ask for: rates counted in this process, or in Redis with all other gateways."""

from __future__ import annotations

from collections.abc import Callable

from lorikeet_platform.limits.gating.gate import LimitGate
from lorikeet_platform.limits.rates.buckets import Buckets
from lorikeet_platform.limits.rates.degrading import DegradingBuckets
from lorikeet_platform.limits.rates.local import LocalBuckets
from lorikeet_platform.limits.rates.shared import SharedBuckets
from lorikeet_platform.telemetry.limits import LimitMetrics


def open_gate(redis_url: str, metrics: LimitMetrics, *, n_live: Callable[[], int]) -> LimitGate:
    """`close` it in the end.

    Args:
        n_live: how many gateways there are, as far as is known; asks nobody.
    """
    buckets: Buckets = LocalBuckets()
    if redis_url:
        buckets = DegradingBuckets(SharedBuckets(redis_url), n_live=n_live, on_change=metrics.degraded.set)
    return LimitGate(buckets, metrics)
