"""Traces go to the collector that the settings name, and a gateway that cannot send them says so at its start."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lorikeet_platform.settings import TracingSettings
from lorikeet_platform.telemetry.tracing.otel import CLOSE_S
from lorikeet_platform.telemetry.tracing.tracer import Ending, TracingUnavailable, Untraced, open_tracer

SCOPE = {"type": "http", "headers": [], "client": ("10.0.0.1", 1)}


class Collector(HTTPServer):
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.received: list[tuple[str, bytes]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_what_is_left_is_sent_when_the_gateway_ends(collector: Collector) -> None:
    tracer = open_tracer(TracingSettings(endpoint=f"{collector.address}/", share=1.0), ())
    trace = tracer.begin(SCOPE)
    with trace.phase("auth"):
        pass
    tracer.end(trace, Ending("POST", "/v1/completions", 200, 0.2))
    tracer.close()
    ((path, body),) = collector.received
    assert path == "/v1/traces"
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    names = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert sorted(names) == ["POST /v1/completions", "auth"]
    assert [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"] == [
        "lorikeet-gateway"
    ]


def test_a_collector_that_is_away_holds_up_no_stop() -> None:
    tracer = open_tracer(TracingSettings(endpoint="http://127.0.0.1:9", share=1.0), ())
    tracer.end(tracer.begin(SCOPE), Ending("POST", "/v1/completions", 200, 0.2))
    began = time.monotonic()
    tracer.close()
    assert time.monotonic() - began < 2 * CLOSE_S


def test_nothing_is_traced_without_an_endpoint() -> None:
    assert isinstance(open_tracer(TracingSettings(), ()), Untraced)


def test_a_gateway_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lorikeet_platform.telemetry.tracing.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracingUnavailable, match=r"lorikeet-serving\[tracing\]"):
        open_tracer(TracingSettings(endpoint="http://collector:4318"), ())
