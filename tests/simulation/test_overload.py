"""Overload at a reduced scale: serving less than asked must not mean serving less than possible."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from lorikeet_engine.simulation.report.summary import summarise
from lorikeet_engine.simulation.workload.description import EngineKnobs
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from tests.support.simulated import simulated, tenants, workload

CAPACITY = 14.0  # requests a second that the small engine below serves within its targets


@cache
def at(factor: int) -> dict[str, Any]:
    """Four tenants of a crowd at `factor` times the capacity, and a quiet one that always sends the same."""
    prompt, output = Lengths(kind="exponential", mean=250, max=2000), Lengths(kind="exponential", mean=60)
    described = workload(
        tenants("crowd", tenants=4, arrivals=Arrivals(rate=CAPACITY * factor - 1), prompt=prompt, output=output),
        tenants("quiet", arrivals=Arrivals(rate=1.0), prompt=prompt, output=output),
        engine=EngineKnobs(max_num_seqs=32, max_num_batched_tokens=512, ttft_deadline=5.0),
        duration_s=60.0,
    )
    return summarise(described, simulated(described))


def quiet(report: dict[str, Any]) -> dict[str, Any]:
    return next(tenant for tenant in report["tenants"] if tenant["tenant"] == "quiet")


@pytest.mark.parametrize("factor", [2, 5])
def test_goodput_does_not_collapse(factor: int) -> None:
    assert at(factor)["goodput"]["requests_per_s"] >= 0.9 * at(1)["goodput"]["requests_per_s"]


@pytest.mark.parametrize("factor", [1, 2, 5])
def test_who_is_admitted_is_served_in_time(factor: int) -> None:
    report = at(factor)
    admitted = report["requests"]["submitted"] - report["requests"]["refused"]
    assert report["latency"]["ttft"]["p99"] <= 5.0
    assert report["requests"]["expired"] <= 0.02 * admitted


@pytest.mark.parametrize("factor", [2, 5])
def test_a_quiet_tenant_hardly_notices_the_crowd(factor: int) -> None:
    before, during = quiet(at(1)), quiet(at(factor))
    assert during["goodput"]["attainment"] >= 0.99
    assert during["latency"]["ttft"]["p90"] <= 1.5 * max(before["latency"]["ttft"]["p90"], 0.2)


def test_every_refusal_has_a_reason_and_comes_from_the_crowd() -> None:
    report = at(5)
    assert report["requests"]["refused"] > 0
    assert sum(report["refusals"].values()) == report["requests"]["refused"]
    assert quiet(report)["requests"]["refused"] == 0
