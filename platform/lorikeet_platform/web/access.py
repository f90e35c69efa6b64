"""What a route declares about its callers. Every route must depend on exactly one of the functions marked here.

    public          anybody
    tenant_key      a tenant's API key, used from where it may be, with a scope that the route's handler names (`needs`)
    administrator   a signed-in session (with the CSRF token on unsafe methods) or the administrator's token;
                    it lives in `accounts.access`

`check_access_is_declared` runs once at start; an application with a route that declares nothing is not built, nor one
with a route for keys whose handler names no scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from lorikeet_platform.auth.api_keys import invalid_api_key
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.scopes import Scope, scopes_of
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.telemetry.tracing.spans import current_trace
from lorikeet_platform.web.addresses import client_address
from lorikeet_platform.web.places import hold

ASK_A_MODEL: Final = frozenset({"inference"})  # scopes of a handler that does nothing else
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
    """The tenant behind the request's one Authorization header, with a key that may do what the route does.

    Raises:
        PlatformError: missing_api_key, invalid_api_key, ip_not_allowed, tenant_suspended, insufficient_scope,
            auth_unavailable, and for what asks no model rate_limit_exceeded, concurrency_limit_exceeded.
    """
    context, handler = get_context(request), request.scope["endpoint"]
    wanted = scopes_of(handler)
    if wanted is None:  # the check at start refuses such a route; one that came by another way is not served either
        raise UndeclaredRoute([handler.__name__])
    result = "internal_error"
    try:
        with current_trace().phase("auth"):
            caller = await _authenticated(request, context)
        current_trace().note(lorikeet__tenant_id=caller.tenant_id, lorikeet__key_id=caller.key_id)
        check_scope(caller, *wanted)
        result = "ok"
    except PlatformError as refusal:
        result = refusal.code
        raise
    except asyncio.CancelledError:
        result = "client_cancelled"
        raise
    finally:
        context.metrics.authentications.labels(result).inc()
    if wanted != ASK_A_MODEL:  # those have a gate of their own
        hold(request, context.turnstile.enter(caller))
    return caller


async def _authenticated(request: Request, context: PlatformContext) -> Principal:
    headers = request.headers.getlist("authorization")
    if len(headers) > 1:
        raise invalid_api_key()
    return await context.authenticator.authenticate(
        headers[0] if headers else None, client_address(request, context.settings.trusted_proxies)
    )


def check_scope(caller: Principal | None, *wanted: Scope) -> None:
    """Whether a key has one of the scopes, or none is wanted; who is no key has them all.

    For what a route's scope does not tell: what else is done where a body asks for it.

    Raises:
        PlatformError: insufficient_scope.
    """
    if caller is not None and wanted and caller.scopes.isdisjoint(wanted):
        raise PlatformError("insufficient_scope", f"The API key lacks the scope {' or '.join(sorted(wanted))}.")


Caller = Annotated[Principal, Depends(tenant_key)]
Public = Depends(public)


def check_access_is_declared(routes: Iterable[BaseRoute]) -> None:
    """Raises UndeclaredRoute naming every route without exactly one declaration, or for keys without scopes."""
    missing = []
    for context in iter_route_contexts(list(routes)):
        dependant = getattr(context, "dependant", None)
        marks = MARKS & set(_calls(dependant)) if dependant is not None else set()
        names_scopes = dependant is not None and scopes_of(dependant.call) is not None
        if len(marks) != 1 or (tenant_key in marks and not names_scopes):
            missing.append(str(getattr(context, "path", context)))
    if missing:
        raise UndeclaredRoute(missing)


def _calls(dependant: Any) -> Iterable[Callable[..., Any]]:
    for child in dependant.dependencies:
        yield child.call
        yield from _calls(child)
