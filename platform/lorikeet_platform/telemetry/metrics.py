"""The gateway's metrics, all in one place.

Labels come from closed sets: route templates, statuses, base or adapter. Tenants, adapters and anything a caller
wrote are never labels; per-tenant figures come from the usage records.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lorikeet_platform.telemetry.limits import LimitMetrics

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class GatewayMetrics:
    """What the gateway counts; registered on the registry that `/metrics` shows."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "lorikeet_gateway_requests",
            "HTTP requests answered; a connection that closed before its answer counts as 499.",
            ["route", "method", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "lorikeet_gateway_request_duration_seconds",
            "From a request's head to the last byte of its answer.",
            ["route"],
            registry=registry,
            buckets=SECONDS,
        )
        self.in_flight = Gauge(
            "lorikeet_gateway_generations_in_flight",
            "Generations with an open usage record.",
            registry=registry,
        )
        self.ttft_seconds = Histogram(
            "lorikeet_gateway_ttft_seconds",
            "From the prepared request to its first token, waiting in the engine included.",
            ["kind"],
            registry=registry,
            buckets=SECONDS,
        )
        self.e2e_seconds = Histogram(
            "lorikeet_gateway_e2e_seconds",
            "From the prepared request to its last token; aborted and failed generations are not counted.",
            ["kind"],
            registry=registry,
            buckets=SECONDS,
        )
        self.revocation_seconds = Histogram(
            "lorikeet_gateway_key_revocation_propagation_seconds",
            "From a key's revocation, or a tenant's suspension, in any process until this one heard of it.",
            registry=registry,
            buckets=SECONDS,
        )
        self._tokens = Counter(
            "lorikeet_gateway_tokens",
            "Tokens settled in usage records; refused requests have none.",
            ["type"],
            registry=registry,
        )
        self._cached_tokens = Counter(
            "lorikeet_gateway_cached_tokens",
            "The part of the settled prompt tokens that was found in the engine's prefix cache.",
            registry=registry,
        )
        self._add_rates(registry)

    def _add_rates(self, registry: CollectorRegistry) -> None:
        self.limits = LimitMetrics(registry)

    def count_tokens(self, *, prompt: int, completion: int, cached: int) -> None:
        self._tokens.labels("prompt").inc(prompt)
        self._tokens.labels("completion").inc(completion)
        self._cached_tokens.inc(cached)
