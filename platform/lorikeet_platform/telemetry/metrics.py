"""The gateway's metrics, all in one place.

Labels come from closed sets: route templates, statuses, base or adapter. Anything a caller wrote is never a label.
Tenants are labels of one metric, and only the busiest; exact figures come from the usage records.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lorikeet_platform.telemetry.busiest import Busiest
from lorikeet_platform.telemetry.limits import LimitMetrics

TOKEN_TYPES = ("prompt", "completion")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


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
        self._add_tenants(registry)
        self._add_doors(registry)

    def _add_tenants(self, registry: CollectorRegistry) -> None:
        self._tenant_tokens = Counter(
            "lorikeet_gateway_tenant_tokens",
            "Settled tokens of the busiest tenants, and of all others together.",
            ["tenant", "type"],
            registry=registry,
        )
        self._busiest = Busiest(on_lost=self._end_series)

    def _add_doors(self, registry: CollectorRegistry) -> None:
        """What lets requests in, and how they go out."""
        self.limits = LimitMetrics(registry)
        self.authentications = Counter(
            "lorikeet_gateway_authentications",
            "Callers of the tenant API by what came of their key: ok, or the code of the refusal.",
            ["result"],
            registry=registry,
        )
        self.generations = Counter(
            "lorikeet_gateway_generations",
            "Generations that ended, by how; as in their usage records.",
            ["outcome"],
            registry=registry,
        )
        self.loop_lag_seconds = Histogram(
            "lorikeet_gateway_event_loop_lag_seconds",
            "How late the event loop came to what was due.",
            registry=registry,
            buckets=LAGS,
        )

    def count_generation(self, tenant_id: str, outcome: str, *, prompt: int, completion: int, cached: int) -> None:
        """One generation with what it used, at its end."""
        self.generations.labels(outcome).inc()
        tenant = self._busiest.label(tenant_id, prompt + completion)
        for kind, n_tokens in zip(TOKEN_TYPES, (prompt, completion), strict=True):
            self._tokens.labels(kind).inc(n_tokens)
            self._tenant_tokens.labels(tenant, kind).inc(n_tokens)
        self._cached_tokens.inc(cached)

    def _end_series(self, tenant_id: str) -> None:
        for kind in TOKEN_TYPES:
            self._tenant_tokens.remove(tenant_id, kind)
