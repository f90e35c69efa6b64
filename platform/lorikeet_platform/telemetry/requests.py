"""Counts and logs every HTTP request, by route template and status; knows nothing of what is asked.

The outermost layer. `web.guards`, inside it, leaves the request's ids in the scope's state.
"""

from __future__ import annotations

import time
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lorikeet_platform.telemetry.metrics import GatewayMetrics

CLIENT_CLOSED: Final = 499
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Probes come every few seconds and say nothing.
SILENT: Final = frozenset({"/livez", "/readyz", "/metrics"})
IDS: Final = ("request_id", "client_request_id")

log = structlog.get_logger(__name__)


class ObservedRequests:
    """ASGI layer around an application: metrics, and one log line a request."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = CLIENT_CLOSED
        started_at = time.monotonic()

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
            self._record(scope, status, time.monotonic() - started_at)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        # The template, not the path: paths hold names that callers chose.
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        if route not in SILENT:
            ids = {name: value for name in IDS if (value := scope.get("state", {}).get(name)) is not None}
            log.info("request", method=method, route=route, status=status, duration_ms=round(seconds * 1000, 1), **ids)
