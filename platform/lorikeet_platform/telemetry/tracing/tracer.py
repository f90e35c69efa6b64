"""Which requests are traced: the port that every request's trace passes, and who stands behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.types import Scope

from lorikeet_platform.auth.addresses import Network
from lorikeet_platform.settings import TracingSettings
from lorikeet_platform.telemetry.tracing.spans import UNTRACED, RequestTrace

EXTRA: Final = "tracing"


class TracingUnavailable(RuntimeError):
    """The settings ask for traces, and what sends them is not installed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended: what its span is named after, and what decides whether it is kept."""

    method: str
    route: str
    status: int
    seconds: float


class Tracer(Protocol):
    """Begins and ends the trace of every request."""

    def begin(self, scope: Scope) -> RequestTrace: ...
    def end(self, trace: RequestTrace, ending: Ending) -> None: ...
    def close(self) -> None:
        """Send what is left; waits a little for it."""
        ...


class Untraced:
    """No traces are wanted."""

    def begin(self, scope: Scope) -> RequestTrace:  # noqa: ARG002
        return UNTRACED

    def end(self, trace: RequestTrace, ending: Ending) -> None:
        pass

    def close(self) -> None:
        pass


def open_tracer(settings: TracingSettings, trusted_proxies: Sequence[Network]) -> Tracer:
    """Raises TracingUnavailable when traces are wanted and the extra that sends them is not installed."""
    if not settings.endpoint:
        return Untraced()
    try:
        from lorikeet_platform.telemetry.tracing.otel import over_http
    except ModuleNotFoundError:
        raise TracingUnavailable(
            f"LORIKEET_TRACING__ENDPOINT is set, but traces need the extra: pip install 'lorikeet-serving[{EXTRA}]'"
        ) from None
    return over_http(settings, trusted_proxies)
