"""The engine's own small HTTP port: /livez, /readyz, /metrics and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lorikeet_engine.metrics.exposition import CONTENT_TYPE


class HealthServer:
    """Serves health and metrics from a thread of its own.

    Args:
        metrics: what to answer a scrape.
        is_live: whether the loop still turns.
        is_ready: whether work is taken.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        metrics: Callable[[], bytes],
        is_live: Callable[[], bool],
        is_ready: Callable[[], bool],
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            server_version = "lorikeet"
            sys_version = ""

            def do_GET(self) -> None:
                match self.path:
                    case "/livez":
                        self._answer(200 if is_live() else 503, b"ok\n" if is_live() else b"the loop stands still\n")
                    case "/readyz":
                        self._answer(200 if is_ready() else 503, b"ok\n" if is_ready() else b"not ready\n")
                    case "/metrics":
                        self._answer(200, metrics(), CONTENT_TYPE)
                    case _:
                        self._answer(404, b"not found\n")

            def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every few seconds; they are not news."""

        self._http = ThreadingHTTPServer((host, port), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
