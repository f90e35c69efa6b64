"""Traces by OpenTelemetry; imported only where the extra is installed and an endpoint is set.

A request's spans are made when it is over. So it is then that one decides whether to keep them: a share of all, and
every one that failed or was slow.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Final

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from starlette.datastructures import Headers
from starlette.types import Scope

from lorikeet_platform.auth.addresses import Network, is_within, parse_address
from lorikeet_platform.settings import TracingSettings
from lorikeet_platform.telemetry.tracing.spans import Caller, RequestTrace
from lorikeet_platform.telemetry.tracing.traceparent import parse_traceparent
from lorikeet_platform.telemetry.tracing.tracer import Ending

SERVICE: Final = "lorikeet-gateway"
CLOSE_S: Final = 2.0
OUR_FAULT: Final = "server_error"  # an outcome of `usage.ledger`
NS: Final = 1_000_000_000


class _KnownTraceIds(RandomIdGenerator):
    """A request has its trace's id from its beginning, for the log; its spans come later."""

    next_trace_id = 0

    def generate_trace_id(self) -> int:
        return self.next_trace_id


class OpenTelemetryTracer:
    """Hands spans to `processor`. For one event loop: what begins and ends requests is one thread."""

    def __init__(
        self, settings: TracingSettings, *, trusted_proxies: Sequence[Network], processor: SpanProcessor
    ) -> None:
        self._settings, self._trusted = settings, trusted_proxies
        self._ids = _KnownTraceIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # what is not to be kept never becomes a span
            resource=Resource.create({SERVICE_NAME: SERVICE}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lorikeet")

    def begin(self, scope: Scope) -> RequestTrace:
        """Somebody else's trace is gone on with only when a proxy of ours hands it over; else it is linked to."""
        start_ns = time.time_ns()
        caller = parse_traceparent(Headers(scope=scope).get("traceparent", ""))
        if caller is not None and self._is_trusted(scope):
            return RequestTrace(caller.trace_id, start_ns, parent=caller)
        return RequestTrace(secrets.randbits(128) or 1, start_ns, link=caller)

    def end(self, trace: RequestTrace, ending: Ending) -> None:
        if self._is_kept(trace, ending):
            self._send(trace, ending)

    def close(self) -> None:
        """Send what is left; waits a little for it, whatever the exporter's own patience is."""
        ending = threading.Thread(target=self._provider.shutdown, name="last-traces", daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    def _is_trusted(self, scope: Scope) -> bool:
        peer = parse_address(scope["client"][0]) if scope.get("client") else None
        return peer is not None and is_within(peer, self._trusted)

    def _is_kept(self, trace: RequestTrace, ending: Ending) -> bool:
        if _has_failed(trace, ending) or ending.seconds >= self._settings.slow_s:
            return True
        if trace.parent is not None:
            return trace.parent.is_sampled
        return random.random() < self._settings.share

    def _send(self, trace: RequestTrace, ending: Ending) -> None:
        self._ids.next_trace_id = trace.trace_id
        root = self._tracer.start_span(
            f"{ending.method} {ending.route}",
            context=_under(trace.parent) if trace.parent else Context(),
            kind=api.SpanKind.SERVER,
            links=[api.Link(_span_context(trace.link))] if trace.link else [],
            start_time=trace.start_ns,
            attributes={
                "http.request.method": ending.method,
                "http.route": ending.route,
                "http.response.status_code": ending.status,
                **trace.attributes,
            },
        )
        if _has_failed(trace, ending):
            root.set_status(api.StatusCode.ERROR)
        inside = api.set_span_in_context(root, Context())
        for phase in trace.phases:
            self._tracer.start_span(phase.name, context=inside, start_time=phase.start_ns).end(phase.end_ns)
        root.end(trace.start_ns + int(ending.seconds * NS))


def _has_failed(trace: RequestTrace, ending: Ending) -> bool:
    """A stream that broke had its 200 before."""
    return ending.status >= 500 or trace.attributes.get("lorikeet.outcome") == OUR_FAULT


def over_http(settings: TracingSettings, trusted_proxies: Sequence[Network]) -> OpenTelemetryTracer:
    """Spans in batches to the collector's OTLP/HTTP address."""
    exporter = OTLPSpanExporter(endpoint=f"{settings.endpoint.rstrip('/')}/v1/traces")
    return OpenTelemetryTracer(settings, trusted_proxies=trusted_proxies, processor=BatchSpanProcessor(exporter))


def _under(caller: Caller) -> Context:
    return api.set_span_in_context(api.NonRecordingSpan(_span_context(caller)), Context())


def _span_context(caller: Caller) -> api.SpanContext:
    flags = api.TraceFlags(api.TraceFlags.SAMPLED if caller.is_sampled else api.TraceFlags.DEFAULT)
    return api.SpanContext(caller.trace_id, caller.span_id, is_remote=True, trace_flags=flags)
