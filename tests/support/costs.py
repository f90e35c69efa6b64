"""Whether what requests were charged for is what the engine did, field by field."""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose

from lorikeet_engine.cost_vector import COSTS, CostVector
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.scheduling.request import Request


def summed(costs: Iterable[CostVector]) -> CostVector:
    total = CostVector()
    for cost in costs:
        total.add(cost)
    return total


def assert_costs_add_up(loop: EngineLoop, requests: Iterable[Request]) -> CostVector:
    """All of an engine's requests are given, and over; the answer is what they cost together."""
    together, totals = summed(request.cost for request in requests), loop.scheduler.costing.totals()
    for name in COSTS:
        ours, theirs = getattr(together, name), getattr(totals, name)
        assert isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-6), f"{name}: {ours} charged, {theirs} in all"
    return together
