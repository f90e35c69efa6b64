"""Many more adapters than the arena holds, at a reduced scale."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

from lorikeet_engine.cost import adapter_bytes
from lorikeet_engine.simulation.report.summary import summarise
from lorikeet_engine.simulation.shipped import load_model
from lorikeet_engine.simulation.workload.description import Adapters, EngineKnobs
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from tests.support.simulated import simulated, tenants, workload

ONE = adapter_bytes(load_model("llama-3-8b"), 16, modules=("self_attn.q_proj", "self_attn.v_proj"))
KNOBS = EngineKnobs(max_num_seqs=64, adapter_pool_bytes=10 * ONE, host_adapter_cache_bytes=100 * ONE)


@cache
def churn(eviction: Literal["gdsf", "lru"] = "gdsf", room: int = 10) -> dict[str, Any]:
    """100 tenants with 200 adapters of three sizes."""
    described = workload(
        tenants(
            "t",
            tenants=100,
            arrivals=Arrivals(rate=30.0),
            prompt=Lengths(value=256),
            output=Lengths(kind="exponential", mean=30),
            adapters=Adapters(count=200, ranks=(8, 16, 24)),
        ),
        engine=replace(KNOBS, adapter_pool_bytes=room * ONE, adapter_eviction=eviction),
        model="llama-3-8b",
        device="h200",
        n_requests=600,
    )
    return summarise(described, simulated(described))


def test_everybody_is_served_though_few_fit() -> None:
    report = churn()
    assert report["requests"]["completed"] == 600
    assert report["adapters"]["requests"] == 600
    assert report["adapters"]["evictions"]["room"] > 0


def test_more_room_means_more_hits() -> None:
    few, many, all_of_them = (churn(room=room)["adapters"]["hit_rate"] for room in (10, 40, 250))
    assert few < many < all_of_them
    assert all_of_them > 0.6  # each adapter is placed once, and most are asked for again


def test_gdsf_keeps_at_least_as_many_hits_as_lru() -> None:
    assert churn("gdsf")["adapters"]["hit_rate"] >= churn("lru")["adapters"]["hit_rate"] - 0.01


def test_the_host_cache_saves_the_disk() -> None:
    loads = churn()["adapters"]["loads"]
    assert loads["disk"] <= 200 + 50  # each adapter about once
    assert loads["host"] > 0


def test_placements_and_hits_add_up_to_the_requests() -> None:
    adapters = churn()["adapters"]
    assert adapters["hit_rate"] == 1 - adapters["placements"] / adapters["requests"]
    assert adapters["stall_seconds"] >= adapters["longest_wait"] > 0
