"""Small loads on the scripted server."""

from __future__ import annotations

from typing import Any

from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_platform.tools.bench.load.description import Load, LoadGroup
from lorikeet_platform.tools.bench.load.target import Target
from tests.support.openai_server import OpenAiServer

CLOSED = Arrivals(kind="closed", concurrency=3)


def group(name: str = "bench", **changes: Any) -> LoadGroup:
    fields: dict[str, Any] = {"arrivals": CLOSED, "prompt": Lengths(value=8), "output": Lengths(value=4)} | changes
    return LoadGroup(name=name, **fields)


def load(*groups: LoadGroup, n_requests: int = 9, **changes: Any) -> Load:
    return Load(name="test", tenants=groups or (group(),), n_requests=n_requests, **changes)


def target(server: OpenAiServer, **changes: Any) -> Target:
    fields: dict[str, Any] = {"url": server.url, "model": "tiny", "n_warmups": 0} | changes
    return Target(**fields)
