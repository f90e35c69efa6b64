"""Metrics of limits. Labels are dimensions and decisions, never tenants or keys."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

DEGRADED = "lorikeet_gateway_ratelimit_degraded"


class LimitMetrics:
    """What a gateway's gate counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decisions = Counter(
            "lorikeet_gateway_ratelimit_decisions",
            "Requests let through and refused by what a tenant or a key may do.",
            ["dimension", "decision"],
            registry=registry,
        )
        self.degraded = Gauge(
            DEGRADED,
            "1 while Redis is lost or slow and each gateway counts its share of the rates alone.",
            registry=registry,
        )
