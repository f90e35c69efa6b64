"""Every error as one shape: `{"error": {message, type, param, code}, "request_id"}`.

Covers refusals of our own, the framework's 404 and 405, its validation errors, a database that does not answer or
cannot keep a value, a store that does not answer, and bugs. Sentences come from `errors`; nothing of a traceback, a
statement or a value reaches the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from lorikeet_adapters.store.blob import BlobUnavailable
from lorikeet_platform.errors import PlatformError

log = structlog.get_logger(__name__)

RETRIED_BY_CLIENTS = frozenset({408, 409, 429})  # and every 5xx; clients obey x-should-retry instead of guessing
MAX_SENTENCE = 300
_KIND_OF_VALIDATION = {"missing": "missing_parameter", "extra_forbidden": "unknown_parameter"}


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class Error(BaseModel):
    """The body of every answer with a status of 400 or more."""

    error: ErrorDetail
    request_id: str


def error_body(error: PlatformError, request_id: str) -> dict[str, Any]:
    return {
        "error": {"message": error.message, "type": error.kind.type, "param": error.param, "code": error.code},
        "request_id": request_id,
    }


def error_headers(error: PlatformError) -> dict[str, str]:
    kind, headers = error.kind, dict(error.headers)
    if kind.status in RETRIED_BY_CLIENTS or kind.status >= 500:
        headers["x-should-retry"] = "true" if error.is_retryable else "false"
    if error.retry_after_ms is not None:
        headers["retry-after"] = str(ceil(error.retry_after_ms / 1000))
        headers["retry-after-ms"] = str(error.retry_after_ms)
    return headers


def request_id_of(request: Request) -> str:
    return cast(str, request.scope["state"]["request_id"])


def render(request: Request, error: PlatformError) -> JSONResponse:
    return JSONResponse(error_body(error, request_id_of(request)), error.kind.status, error_headers(error))


def install_error_rendering(app: FastAPI) -> None:
    """Bugs (plain exceptions) are not here: `web.guards` renders them, outside of all other layers."""
    app.add_exception_handler(PlatformError, _on_platform_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    for kind in (OperationalError, InterfaceError, PoolTimeout):
        app.add_exception_handler(kind, _on_database_error)
    app.add_exception_handler(DataError, _on_unstorable_value)
    app.add_exception_handler(BlobUnavailable, _on_store_error)


def _on_platform_error(request: Request, error: Exception) -> JSONResponse:
    return render(request, cast(PlatformError, error))


def _on_database_error(request: Request, error: Exception) -> JSONResponse:
    log.error("the database does not answer", request_id=request_id_of(request), exc_info=error)
    return render(request, PlatformError("db_unavailable"))


def _on_store_error(request: Request, error: Exception) -> JSONResponse:
    log.error("the store does not answer", request_id=request_id_of(request), error=str(error))
    return render(request, PlatformError("store_unavailable"))


def _on_unstorable_value(request: Request, error: Exception) -> JSONResponse:
    """The last line of defence: bounds and shapes are checked before. The driver's text may hold the value."""
    kind = type(cast(DataError, error).orig).__name__
    log.warning("the database refused a value", request_id=request_id_of(request), error=kind)
    return render(request, PlatformError("invalid_value"))


def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    status = cast(HTTPException, error).status_code
    headers: Mapping[str, str] = cast(HTTPException, error).headers or {}
    code = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}.get(status, "bad_request")
    return render(request, PlatformError(code, headers=headers))


def _on_validation_error(request: Request, error: Exception) -> JSONResponse:
    """The first complaint, with the field's path as `param`."""
    first = cast(RequestValidationError, error).errors()[0]
    place, *path = first["loc"]
    if place == "path":  # an address that cannot exist is simply not found
        return render(request, PlatformError("not_found"))
    param = ".".join(str(part) for part in path) or None
    code = _KIND_OF_VALIDATION.get(first["type"], "invalid_value")
    sentence = {
        "missing_parameter": f"{param or 'The body'} is required.",
        "unknown_parameter": f"{param} is not a parameter here."[:MAX_SENTENCE],
    }.get(code, f"{param or 'The body'}: {first['msg']}."[:MAX_SENTENCE])
    return render(request, PlatformError(code, sentence, param[:100] if param else None))
