"""Adapters, versions, files and aliases over HTTP: transport only, the same routes on both ports.

`adapter_routes` makes a port's router out of them; `quarantine_routes` is for administrators alone.
"""

from __future__ import annotations

from fastapi import APIRouter

from lorikeet_platform.auth.actor import FindActor
from lorikeet_platform.registry.acting import acting_as
from lorikeet_platform.registry.routes import adapters, aliases, files, quarantine, versions
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

__all__ = ["adapter_routes", "quarantine_routes"]


def adapter_routes(prefix: str, find_actor: FindActor) -> APIRouter:
    """All that a tenant may do with its adapters, under `prefix`, for whom `find_actor` finds."""
    router = _router(prefix, find_actor)
    for part in (adapters, versions, files, aliases):
        part.add_to(router)
    return router


def quarantine_routes(prefix: str, find_actor: FindActor) -> APIRouter:
    """What only an administrator may do with a tenant's versions."""
    router = _router(prefix, find_actor)
    quarantine.add_to(router)
    return router


def _router(prefix: str, find_actor: FindActor) -> APIRouter:
    return APIRouter(
        prefix=f"{prefix}/adapters",
        route_class=StrictJsonRoute,
        dependencies=[acting_as(find_actor), KnownQuery, WantedBody],
    )
