"""What every request must satisfy before anything reads it, and what every answer carries.

    in:   at most 100 headers of 32 KiB, never Content-Length together with Transfer-Encoding, no compressed body,
          no NUL character and no credential in the address, a body within bounds that keeps moving
    out:  x-request-id, no-store, nosniff on everything; a bug becomes a 500 in the common shape
    log:  every line written on behalf of a request carries its id

Only `telemetry.requests` is further out, which counts what is refused here. Knows no routes and no tenants.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lorikeet_platform.auth.key_format import KEY_PATTERN
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.ids import new_id
from lorikeet_platform.settings import LimitSettings
from lorikeet_platform.telemetry.request_id import set_request_id
from lorikeet_platform.web.errors import render

log = structlog.get_logger(__name__)

CREDENTIAL_NAMES = frozenset({"api_key", "api-key", "apikey", "access_token", "authorization", "x-api-key"})
CONTENT_LENGTH = re.compile(r"[0-9]{1,20}")
CLIENT_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY = re.compile(KEY_PATTERN)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one listener; PATCH bodies to an address that `uploads` matches may be as large as a file."""

    limits: LimitSettings
    uploads: re.Pattern[str] | None = None
    answer_headers: Mapping[str, str] = field(default_factory=dict)

    def body_bytes(self, scope: Scope) -> int:
        if self.uploads and scope["method"] == "PATCH" and self.uploads.match(scope["path"]):
            return self.limits.upload_file_bytes
        return self.limits.json_body_bytes


class Guard:
    """Wraps an application; see the module's text."""

    def __init__(self, app: ASGIApp, bounds: Bounds) -> None:
        self._app, self._bounds = app, bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = time.perf_counter()
        request_id = new_id("req")
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        set_request_id(request_id)
        state["client_request_id"] = _client_request_id(headers)
        has_started = False

        async def guarded_send(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                message = self._with_headers(message, request_id, time.perf_counter() - started_at)
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                self._check(scope, headers)
                await self._app(scope, self._bounded(scope, receive), guarded_send)
            except ClientDisconnect:
                pass  # nobody is there to be answered, and it is no fault of ours
            except PlatformError as error:
                if has_started:
                    raise
                await render(Request(scope), error)(scope, receive, guarded_send)
            except Exception:
                log.exception("a request failed")
                if has_started:
                    raise  # the server breaks the connection: an answer cut short must not look complete
                await render(Request(scope), PlatformError("internal_error"))(scope, receive, guarded_send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        limits, raw = self._bounds.limits, scope["headers"]
        if len(raw) > limits.header_count or sum(len(name) + len(value) for name, value in raw) > limits.header_bytes:
            raise PlatformError("headers_too_large", headers={"connection": "close"})
        lengths = headers.getlist("content-length")
        if lengths and "transfer-encoding" in headers:
            raise PlatformError(
                "bad_request", "Send Content-Length or Transfer-Encoding, not both.", headers={"connection": "close"}
            )
        if len(lengths) > 1 or not all(CONTENT_LENGTH.fullmatch(text) for text in lengths):
            raise PlatformError("bad_request", "Content-Length is not one number.", headers={"connection": "close"})
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise PlatformError("unsupported_media_type", "Compressed bodies are not accepted.")
        if "\x00" in scope["path"]:  # Postgres cannot keep or compare it
            raise PlatformError("invalid_value", "The address has a NUL character.", "path")
        if _has_credential(scope["query_string"]):
            raise PlatformError("key_in_query")
        if lengths and int(lengths[0]) > self._bounds.body_bytes(scope):
            raise self._too_large(scope)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """`receive` that counts the body and does not wait for ever for its next piece."""
        limit, stall_s = self._bounds.body_bytes(scope), self._bounds.limits.body_stall_s
        n_received, is_complete = 0, False

        async def bounded_receive() -> Message:
            nonlocal n_received, is_complete
            if is_complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), stall_s)
            except TimeoutError:
                raise PlatformError("request_timeout", headers={"connection": "close"}) from None
            if message["type"] == "http.request":
                n_received += len(message.get("body", b""))
                is_complete = not message.get("more_body", False)
                if n_received > limit:
                    raise self._too_large(scope)
            return message

        return bounded_receive

    def _too_large(self, scope: Scope) -> PlatformError:
        limit = self._bounds.body_bytes(scope)
        return PlatformError(
            "request_too_large", f"The body may have at most {limit} bytes.", headers={"connection": "close"}
        )

    def _with_headers(self, message: Message, request_id: str, seconds: float) -> Message:
        own = {
            "x-request-id": request_id,
            "openai-processing-ms": str(round(seconds * 1000)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **self._bounds.answer_headers,
        }
        present = {name.lower() for name, _ in message["headers"]}
        added = [(name.encode(), value.encode()) for name, value in own.items() if name.encode() not in present]
        return {**message, "headers": [*message["headers"], *added]}


def _client_request_id(headers: Headers) -> str | None:
    text = headers.get("x-client-request-id", "")
    return text if CLIENT_REQUEST_ID.fullmatch(text) else None


def _has_credential(query: bytes) -> bool:
    if not query:
        return False
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return any(name.lower() in CREDENTIAL_NAMES or _KEY.search(name) or _KEY.search(value) for name, value in pairs)
