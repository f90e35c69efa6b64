"""Small simulated workloads that run in a fraction of a second."""

from __future__ import annotations

from typing import Any

from lorikeet_engine.simulation.assembly import Simulation, build_world
from lorikeet_engine.simulation.workload.description import EngineKnobs, TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths


def tenants(name: str, **fields: Any) -> TenantGroup:
    defaults: dict[str, Any] = {
        "arrivals": Arrivals(rate=4.0),
        "prompt": Lengths(kind="uniform", min=20, max=200),
        "output": Lengths(kind="exponential", mean=20, max=100),
    }
    return TenantGroup(name=name, **(defaults | fields))


def workload(*groups: TenantGroup, engine: EngineKnobs | None = None, **fields: Any) -> Workload:
    """Of 60 requests, unless the fields say how it ends."""
    defaults: dict[str, Any] = {"name": "test", "model": "qwen2.5-7b", "device": "rtx4090"}
    if "duration_s" not in fields:
        defaults["n_requests"] = 60
    return Workload(tenants=groups, engine=engine or EngineKnobs(), **(defaults | fields))


def simulated(described: Workload) -> Simulation:
    """The world after everything has ended."""
    world = build_world(described)
    world.run()
    return world
