"""Request bodies as strict JSON: one content type, bounded, no duplicate keys, no NaN.

`StrictJsonRoute` gives routes with a pydantic body the same reader, before the framework would use its own lenient one.
What such a body says is stored, so no string of it may hold a NUL character, which Postgres cannot keep.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from email.message import Message
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from lorikeet_adapters.strict_json import StrictJsonError, loads
from lorikeet_platform.errors import PlatformError

MAX_DEPTH = 64
MAX_PARAM = 100
NUL = "\x00"
NO_BODY: Final[list[object]] = []  # no object, so no route takes it for its body

Handle = Callable[[Request], Coroutine[Any, Any, Response]]


async def read_json(request: Request) -> dict[str, Any]:
    """The body's JSON object; its size is bounded by `web.guards`.

    Raises:
        PlatformError: unsupported_media_type, request_too_large, invalid_json, duplicate_key, invalid_unicode,
            json_too_deep, request_timeout.
    """
    check_content_type(request, "application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
    try:
        value = loads(bytes(body), max_depth=MAX_DEPTH)
    except StrictJsonError as error:
        raise PlatformError(error.code, error.message) from None
    if not isinstance(value, dict):
        raise PlatformError("invalid_json", "The body must be a JSON object.")
    return value


def check_content_type(request: Request, wanted: str) -> None:
    """Exactly `wanted`, with no charset but UTF-8."""
    message = Message()
    message["content-type"] = request.headers.get("content-type", "none/none")
    charset = message.get_content_charset("utf-8")
    if message.get_content_type() != wanted or charset not in ("utf-8", "utf8"):
        raise PlatformError("unsupported_media_type", f"Content-Type must be {wanted}.")


class StrictJsonRoute(APIRoute):
    """A route whose body is read by `read_json` and has no NUL character; whoever may not call hears nothing of it."""

    def get_route_handler(self) -> Handle:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_then_handle(request: Request) -> Response:
            try:
                body = _without_nul(await read_json(request))
            except PlatformError as error:
                if "connection" in error.headers:  # the connection itself is at fault, and nothing more comes of it
                    raise
                return await _refuse(request, handle, error)
            _give(request, body)
            return await handle(request)

        return read_then_handle


async def _refuse(request: Request, handle: Handle, error: PlatformError) -> Response:
    """Raises `error`, unless the route has something to say first: strangers learn nothing about their bodies."""
    _give(request, NO_BODY)
    try:
        await handle(request)
    except RequestValidationError:
        pass
    raise error


def _give(request: Request, body: object) -> None:
    """Starlette keeps a parsed body in these two; the framework then finds it instead of parsing itself."""
    request._json = body
    request._body = b"{}"


def _without_nul(body: dict[str, Any]) -> dict[str, Any]:
    """Raises PlatformError(invalid_value) naming the field; recursion is as deep as `read_json` lets bodies be."""
    param = _place_of_nul(body, ())
    if param is not None:
        name = ".".join(param).replace(NUL, "")
        raise PlatformError("invalid_value", "A string of the body has a NUL character.", name[:MAX_PARAM] or None)
    return body


def _place_of_nul(value: object, path: tuple[str, ...]) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return path if NUL in value else None
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, item in inner:
        here = (*path, str(key))
        found = here if NUL in str(key) else _place_of_nul(item, here)
        if found is not None:
            return found
    return None
