"""Counts, logs and traces every HTTP request, by route template and status; knows nothing of what is asked.

The outermost layer. `web.guards`, inside it, leaves the request's ids in the scope's state.
"""

from __future__ import annotations

import time
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.telemetry.tracing.spans import RequestTrace, set_trace
from lorikeet_platform.telemetry.tracing.tracer import Ending, Tracer

CLIENT_CLOSED: Final = 499
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Probes come every few seconds and say nothing.
SILENT: Final = frozenset({"/livez", "/readyz", "/metrics"})
IDS: Final = ("request_id", "client_request_id")

log = structlog.get_logger(__name__)


class ObservedRequests:
    """ASGI layer around an application: metrics, one log line a request, and its trace where they are wanted."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics, tracer: Tracer) -> None:
        self._app = app
        self._metrics, self._tracer = metrics, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = CLIENT_CLOSED
        started_at = time.monotonic()
        trace = self._tracer.begin(scope)
        set_trace(trace)

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception:
            status = 500
            raise
        finally:
            self._record(scope, status, time.monotonic() - started_at, trace)

    def _record(self, scope: Scope, status: int, seconds: float, trace: RequestTrace) -> None:
        # The template, not the path: paths hold names that callers chose.
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        if route in SILENT:
            return
        ids = {name: value for name in IDS if (value := scope.get("state", {}).get(name)) is not None}
        trace.note(**{f"lorikeet__{name}": value for name, value in ids.items()})
        self._tracer.end(trace, Ending(method, route, status, seconds))
        if trace.trace_id:
            ids["trace_id"] = f"{trace.trace_id:032x}"
        log.info("request", method=method, route=route, status=status, duration_ms=round(seconds * 1000, 1), **ids)
