"""Uvicorn as we need it: the h11 parser with bounded headers, a deadline for them, no Server header.

The faster parser puts no bound on headers; h11 does, and `web.guards` refuses what h11 lets through.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from lorikeet_platform.settings import LimitSettings

KEEP_ALIVE_S = 15
MAX_CONNECTIONS = 2_000
SHUTDOWN_S = 8


class DeadlineProtocol(H11Protocol):
    """Closes a connection whose next request's head takes too long: uvicorn's own timer starts after an answer."""

    header_deadline_s = LimitSettings().header_deadline_s
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_head()  # the next head may have come half with the last request

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        waits_for_head = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not waits_for_head:
            self._disarm()
        elif self._deadline is None:
            self._arm()

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(self.header_deadline_s, self._on_deadline)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


def uvicorn_server(app: ASGIApp, host: str, port: int, *, limits: LimitSettings | None = None) -> uvicorn.Server:
    """A server for one listener; the caller runs `serve()` and decides when it ends."""
    limits = limits or LimitSettings()
    protocol: Any = type("BoundedProtocol", (DeadlineProtocol,), {"header_deadline_s": limits.header_deadline_s})
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol,
        ws="none",
        lifespan="on",
        h11_max_incomplete_event_size=limits.header_bytes,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        access_log=False,
        log_config=None,
    )
    return uvicorn.Server(config)
