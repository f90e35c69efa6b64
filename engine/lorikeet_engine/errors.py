"""What the engine can refuse or fail, each with a stable machine word.

    EngineError
    ├── RequestRefused          the caller's request cannot be served as it is
    │   ├── InvalidRequest
    │   ├── ContextLengthExceeded
    │   ├── AdapterUnavailable
    │   │   └── AdapterDamaged  the stored bytes are not those that were validated
    │   └── AdapterRetired      the version is being taken out of service
    ├── Overloaded              nothing wrong with the request, no room now
    │   └── TenantLimited       no room in the tenant's own share
    │       ├── ConcurrencyLimited   as many requests as it may have are in the engine
    │       └── QueueLimited         as many as may wait do
    ├── DeadlineExceeded        it waited too long for its first token
    ├── EngineUnavailable       no engine answers (starting, restarting, gone)
    ├── EngineFailure           our fault: a step failed
    └── UnsupportedModel        at start: this model or setting cannot be served

`ERRORS_BY_CODE` rebuilds an error that crossed the engine socket.
"""

from __future__ import annotations

REFUSAL_REASONS = (
    "tenant_concurrency",  # a tenant, or one of its keys, has as many requests here as it may have
    "tenant_waiting",  # as many of them wait as may wait
    "tenant_queue",  # the tenant's share of the queue is full
    "engine_queue",  # the whole queue is full
    "engine_tokens",  # too many prompt tokens wait
    "ttft_tenant",  # the tenant's own work ahead would make it late
    "ttft_engine",  # everybody's work ahead would make it late
    "ttft_adapter",  # its adapter would arrive too late
    "ttft_kv",  # its KV blocks would be free too late
)


class EngineError(Exception):
    """Base of all; `code` is what crosses process borders, `param` names the request field at fault.

    `retry_after_s` and `reason` (one of `REFUSAL_REASONS`) are set where waiting helps.
    """

    code = "engine_failure"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.reason = reason


class RequestRefused(EngineError):
    code = "invalid_value"


class InvalidRequest(RequestRefused):
    code = "invalid_value"


class ContextLengthExceeded(RequestRefused):
    code = "context_length_exceeded"


class AdapterUnavailable(RequestRefused):
    """The adapter's image is missing, damaged, or too large for the arena."""

    code = "adapter_unavailable"


class AdapterDamaged(AdapterUnavailable):
    """The adapter's image in the store has another digest: somebody has to look at it, waiting does not help."""

    code = "integrity_error"


class AdapterRetired(RequestRefused):
    """The adapter is being unloaded: what runs on it ends as it began, nothing new starts."""

    code = "adapter_retired"


class Overloaded(EngineError):
    code = "overloaded"


class TenantLimited(Overloaded):
    code = "tenant_limited"


class ConcurrencyLimited(TenantLimited):
    code = "concurrency_limit_exceeded"


class QueueLimited(TenantLimited):
    code = "queue_limit_exceeded"


class DeadlineExceeded(EngineError):
    code = "deadline_exceeded"


class EngineUnavailable(EngineError):
    code = "engine_unavailable"


class EngineFailure(EngineError):
    code = "engine_failure"


class DeviceLost(Exception):
    """The device does not compute any more: what it is asked for next fails, too. Ends the engine's process."""


class UnsupportedModel(EngineError):
    code = "unsupported_model"


ERRORS_BY_CODE: dict[str, type[EngineError]] = {
    cls.code: cls
    for cls in (
        InvalidRequest,
        ContextLengthExceeded,
        AdapterUnavailable,
        AdapterDamaged,
        AdapterRetired,
        Overloaded,
        TenantLimited,
        ConcurrencyLimited,
        QueueLimited,
        DeadlineExceeded,
        EngineUnavailable,
        EngineFailure,
    )
}
