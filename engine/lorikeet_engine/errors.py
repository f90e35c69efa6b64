"""What the engine can refuse or fail, each with a stable machine word.

    EngineError
    ├── RequestRefused          the caller's request cannot be served as it is
    │   ├── InvalidRequest
    │   ├── ContextLengthExceeded
    │   └── AdapterUnavailable
    ├── Overloaded              nothing wrong with the request, no room now
    ├── EngineUnavailable       no engine answers (starting, restarting, gone)
    ├── EngineFailure           our fault: a step failed
    └── UnsupportedModel        at start: this model or setting cannot be served

`ERRORS_BY_CODE` rebuilds an error that crossed the engine socket.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all; `code` is what crosses process borders, `param` names the request field at fault."""

    code = "engine_failure"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestRefused(EngineError):
    code = "invalid_value"


class InvalidRequest(RequestRefused):
    code = "invalid_value"


class ContextLengthExceeded(RequestRefused):
    code = "context_length_exceeded"


class AdapterUnavailable(RequestRefused):
    """The adapter's image is missing, damaged, or too large for the arena."""

    code = "adapter_unavailable"


class Overloaded(EngineError):
    code = "overloaded"


class EngineUnavailable(EngineError):
    code = "engine_unavailable"


class EngineFailure(EngineError):
    code = "engine_failure"


class UnsupportedModel(EngineError):
    code = "unsupported_model"


ERRORS_BY_CODE: dict[str, type[EngineError]] = {
    cls.code: cls
    for cls in (InvalidRequest, ContextLengthExceeded, AdapterUnavailable, Overloaded, EngineUnavailable, EngineFailure)
}
