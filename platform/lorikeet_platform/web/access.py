"""What a route declares about its callers. Every route must depend on exactly one of the functions marked here.

    public          anybody
    tenant_key      a tenant's API key
    administrator   a signed-in session (with the CSRF token on unsafe methods) or the administrator's token;
                    it lives in `accounts.access`

`check_access_is_declared` runs once at start; an application with a route that declares nothing is not built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from lorikeet_platform.auth.api_keys import invalid_api_key
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.context import get_context

MARKS: set[Callable[..., Any]] = set()


class UndeclaredRoute(Exception):
    """A route says nothing about who may call it."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"no declared access: {', '.join(names)}")


def declares_access(dependency: Callable[..., Any]) -> Callable[..., Any]:
    MARKS.add(dependency)
    return dependency


@declares_access
async def public() -> None:
    """Anybody may call."""


@declares_access
async def tenant_key(request: Request) -> Principal:
    """The tenant behind the request's one Authorization header."""
    headers = request.headers.getlist("authorization")
    if len(headers) > 1:
        raise invalid_api_key()
    return await get_context(request).authenticator.authenticate_async(headers[0] if headers else None)


Caller = Annotated[Principal, Depends(tenant_key)]
Public = Depends(public)


def check_access_is_declared(routes: Iterable[BaseRoute]) -> None:
    """Raises UndeclaredRoute naming every route without exactly one declaration."""
    missing = []
    for context in iter_route_contexts(list(routes)):
        dependant = getattr(context, "dependant", None)
        n_marks = len(MARKS & set(_calls(dependant))) if dependant is not None else 0
        if n_marks != 1:
            missing.append(str(getattr(context, "path", context)))
    if missing:
        raise UndeclaredRoute(missing)


def _calls(dependant: Any) -> Iterable[Callable[..., Any]]:
    for child in dependant.dependencies:
        yield child.call
        yield from _calls(child)
