"""What is told and recorded of a request that the engine, or the end of its caller's right, did not let be answered."""

from __future__ import annotations

import structlog

from lorikeet_engine.errors import (
    AdapterDamaged,
    AdapterUnavailable,
    DeadlineExceeded,
    EngineError,
    EngineFailure,
    Overloaded,
    RequestRefused,
    TenantLimited,
)
from lorikeet_platform.auth.api_keys import invalid_api_key
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.inference.running.answering import EndCode
from lorikeet_platform.usage.ledger import Outcome

log = structlog.get_logger(__name__)


def platform_error(error: EngineError) -> PlatformError:
    """What the caller is told of an engine's error; the engine's own failures keep their details to the log."""
    if isinstance(error, EngineFailure):
        log.error("engine failed a request", error=type(error).__name__)
        return PlatformError("internal_error", "the engine failed while working on this request")
    if isinstance(error, AdapterDamaged):
        return PlatformError("integrity_error")
    # A limit that time does not help with, because it is 0.
    is_final = isinstance(error, TenantLimited) and error.retry_after_s is None
    return PlatformError(
        error.code, error.message, param=error.param, retry_after_s=error.retry_after_s, is_final=is_final
    )


def refusal_of(code: EndCode) -> PlatformError:
    """What is told of an ended right to be answered while nothing was sent yet."""
    return invalid_api_key() if code == "key_revoked" else PlatformError(code)


def draining() -> PlatformError:
    return PlatformError("draining", "this server is shutting down")


def outcome_of(error: EngineError) -> Outcome:
    """What was turned away is no failure of what should have answered; an adapter that cannot be loaded is one."""
    if isinstance(error, DeadlineExceeded):
        return "deadline"
    if isinstance(error, AdapterUnavailable):
        return "server_error"
    return "shed" if isinstance(error, Overloaded | RequestRefused) else "server_error"
