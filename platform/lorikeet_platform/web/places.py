"""The place that a request holds at the turnstile: taken by `web.access`, given back here when all of it is over.

A middleware, because an answer may go on after its route's function has ended. Whoever needs no place for a while says
so through `counted_elsewhere` and `waiting`; requests of the administration port have none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from lorikeet_platform.limits.gating.turnstile import Place

_PLACE: Final = "place"


class PlacesGivenBack:
    """Wraps an application; see the module's text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            place: Place | None = scope.get("state", {}).get(_PLACE)
            if place is not None:
                place.leave()


def hold(request: Request, place: Place) -> None:
    request.scope["state"][_PLACE] = place


def counted_elsewhere(request: Request) -> AbstractContextManager[None]:
    place: Place | None = request.scope["state"].get(_PLACE)
    return nullcontext() if place is None else place.counted_elsewhere()


def waiting(request: Request) -> AbstractContextManager[None]:
    """Raises PlatformError(concurrency_limit_exceeded)."""
    place: Place | None = request.scope["state"].get(_PLACE)
    return nullcontext() if place is None else place.waiting()
