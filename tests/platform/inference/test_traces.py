"""A request's trace: its phases in order, its figures, nothing of its content; which traces are kept, and whose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from lorikeet_engine.client import Delta
from lorikeet_engine.errors import EngineFailure
from lorikeet_platform.settings import TracingSettings
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.telemetry.requests import ObservedRequests
from lorikeet_platform.telemetry.tracing.otel import OpenTelemetryTracer
from tests.platform.inference.conftest import CHAT, Gateway

PHASES = ["auth", "prepare", "admit", "queue", "engine.prefill", "engine.decode", "settle"]
THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = THEIRS[:-1] + "0"
THEIR_TRACE = 0x0AF7651916CD43DD8448EB211C80319C


class Collector:
    """The spans that were sent, and the gateway that sends them."""

    def __init__(self, gateway: Gateway, *, proxies: str = "", **settings: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.gateway = gateway
        tracing = TracingSettings(endpoint="http://collector:4318", **settings)
        trusted = [ip_network(proxies)] if proxies else []
        processor = SimpleSpanProcessor(self._exporter)
        self.tracer = OpenTelemetryTracer(tracing, trusted_proxies=trusted, processor=processor)
        metrics = GatewayMetrics(type(gateway.registry)())
        gateway.app = ObservedRequests(gateway.app, metrics=metrics, tracer=self.tracer)

    def spans(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def root(self) -> ReadableSpan:
        (root,) = [span for span in self.spans() if span.name.startswith("POST ")]
        return root


@pytest.fixture
def collector(gateway: Gateway) -> Iterator[Collector]:
    collector = Collector(gateway, share=1.0)
    yield collector
    collector.tracer.close()


@pytest.mark.parametrize("stream", [False, True])
def test_the_phases_of_a_request_lie_in_order_inside_its_span(collector: Collector, stream: bool) -> None:
    assert collector.gateway.post(CHAT | {"stream": stream}).status_code == 200
    root = collector.root()
    inner = [span for span in collector.spans() if span is not root]
    assert sorted(span.name for span in inner) == sorted(PHASES)
    for span in inner:
        assert span.parent is not None
        assert root.context is not None
        assert span.parent.span_id == root.context.span_id
        assert span.start_time is not None
        assert span.end_time is not None
        assert root.start_time is not None
        assert root.start_time <= span.start_time <= span.end_time
    starts = {span.name: span.start_time or 0 for span in inner}
    assert sorted(PHASES, key=lambda name: starts[name])[:4] == PHASES[:4]


def test_an_adapter_that_had_to_be_loaded_has_a_phase_of_its_own(collector: Collector) -> None:
    assert collector.gateway.post(CHAT | {"model": "pirate"}).status_code == 200
    spans = {span.name: span for span in collector.spans()}
    assert set(PHASES) | {"adapter.load"} <= set(spans)
    assert spans["adapter.load"].start_time == spans["queue"].end_time
    assert (spans["adapter.load"].end_time or 0) == (spans["engine.prefill"].start_time or 0)


def test_a_span_has_the_figures_and_never_the_words(collector: Collector) -> None:
    said = "unmistakable-canary-5120"
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"say {said}"}]}
    assert collector.gateway.post(body).status_code == 200
    attributes = dict(collector.root().attributes or {})
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "tiny"
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert attributes["http.route"] == "/v1/chat/completions"
    assert attributes["http.response.status_code"] == 200
    assert attributes["lorikeet.outcome"] == "ok"
    assert attributes["lorikeet.tenant_id"] == collector.gateway.tenants["harbour"]
    everything = json.dumps([span.to_json() for span in collector.spans()])
    assert said not in everything
    assert "Hello" not in everything
    assert collector.gateway.keys["harbour"] not in everything


def test_the_log_line_names_the_trace(collector: Collector) -> None:
    with capture_logs() as lines:
        collector.gateway.post(CHAT)
    (line,) = [line for line in lines if line["event"] == "request"]
    context = collector.root().context
    assert context is not None
    assert line["trace_id"] == f"{context.trace_id:032x}"


def test_of_what_goes_well_a_share_is_kept_and_of_what_fails_or_is_slow_all(gateway: Gateway) -> None:
    collector = Collector(gateway, share=0.0)
    gateway.post(CHAT)
    assert collector.spans() == []
    gateway.engine.scripts.append([EngineFailure("broken")])
    assert gateway.post(CHAT).status_code == 500
    assert collector.root().status.status_code.name == "ERROR"


def test_a_stream_that_broke_after_its_200_is_kept_as_a_failure(gateway: Gateway) -> None:
    collector = Collector(gateway, share=0.0)
    gateway.engine.scripts.append([Delta("Hello"), EngineFailure("broken")])
    assert gateway.post(CHAT | {"stream": True}).status_code == 200
    assert collector.root().status.status_code.name == "ERROR"


def test_a_slow_request_is_kept(gateway: Gateway) -> None:
    collector = Collector(gateway, share=0.0, slow_s=1e-6)
    gateway.post(CHAT)
    assert collector.root().name == "POST /v1/chat/completions"


def test_a_trace_of_a_trusted_proxy_goes_on_and_its_word_on_keeping_counts(gateway: Gateway) -> None:
    collector = Collector(gateway, proxies="127.0.0.0/8", share=0.0)
    gateway.post(CHAT, traceparent=NOT_SAMPLED)
    assert collector.spans() == []
    gateway.post(CHAT, traceparent=THEIRS)
    root = collector.root()
    assert root.context is not None
    assert root.context.trace_id == THEIR_TRACE
    assert root.parent is not None
    assert root.parent.span_id == 0xB7AD6B7169203331


def test_a_strangers_trace_is_linked_to_and_not_gone_on_with(collector: Collector) -> None:
    collector.gateway.post(CHAT, traceparent=THEIRS)
    root = collector.root()
    assert root.parent is None
    assert root.context is not None
    assert root.context.trace_id != THEIR_TRACE
    assert [link.context.trace_id for link in root.links] == [THEIR_TRACE]


@pytest.mark.parametrize(
    "header", ["", "00-0-0-01", "ff" + THEIRS[2:], THEIRS + "-more", "00-" + "0" * 32 + "-b7ad6b7169203331-01"]
)
def test_what_is_no_traceparent_changes_nothing(collector: Collector, header: str) -> None:
    assert collector.gateway.post(CHAT, traceparent=header).status_code == 200
    root = collector.root()
    assert root.parent is None
    assert list(root.links) == []


def test_a_refused_request_ends_its_trace_without_the_engines_phases(collector: Collector) -> None:
    assert collector.gateway.post(CHAT | {"model": "nobody"}).status_code == 404
    assert {span.name for span in collector.spans()} == {"POST /v1/chat/completions", "auth", "prepare"}
