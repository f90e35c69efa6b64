"""Every route of both ports as the applications have it, for tests that must forget none."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.client import EngineClient
from lorikeet_platform.app import build_context, create_admin_app, create_tenant_app
from lorikeet_platform.auth.scopes import Scope, scopes_of
from lorikeet_platform.db.session import Database
from lorikeet_platform.settings import Settings
from lorikeet_platform.web.access import public, tenant_key

Port = Literal["tenant", "admin"]


@dataclass(frozen=True)
class Route:
    """One method of one address, and who may call it: anybody, keys with one of `scopes`, or administrators."""

    port: Port
    method: str
    path: str
    is_public: bool
    takes_key: bool
    scopes: frozenset[Scope]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@cache
def live_routes() -> tuple[Route, ...]:
    """Routes are looked at, never called, so there is nothing behind them."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        context = build_context(
            settings,
            db=Database(settings.resolved_database_url),
            store=LocalBlobStore(Path(folder) / "blobs"),
            engine_client=cast(EngineClient, None),
            wake=lambda _job_id: None,
        )
        found = (*_routes("tenant", create_tenant_app(context)), *_routes("admin", create_admin_app(context)))
        context.db.close()
        return found


def _routes(port: Port, app: FastAPI) -> Iterator[Route]:
    for found in iter_route_contexts(list(app.routes)):
        dependant: Any = getattr(found, "dependant", None)
        assert dependant is not None, f"{found} is no route of the framework's"
        calls = set(_calls(dependant))
        scopes = scopes_of(dependant.call) or frozenset()
        for method in sorted(found.methods or ()):
            yield Route(port, method, str(found.path), public in calls, tenant_key in calls, scopes)


def _calls(dependant: Any) -> Iterator[Callable[..., Any]]:
    for child in dependant.dependencies:
        yield child.call
        yield from _calls(child)
