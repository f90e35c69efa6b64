"""A simulation as a whole: virtual time, repeatable to the last digit, nothing lost and nothing left behind."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.simulation.assembly import build_world
from lorikeet_engine.simulation.report.summary import summarise
from lorikeet_engine.simulation.workload.description import Aborts, Adapters, EngineKnobs, SharedPrefixes, Slo
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from tests.support.simulated import simulated, tenants, workload

BUSY = workload(
    tenants("a", tenants=4, adapters=Adapters(count=8, ranks=(8, 32)), aborts=Aborts(share=0.7, after_s=0.3)),
    tenants("b", arrivals=Arrivals(kind="closed", concurrency=3), shared_prefixes=SharedPrefixes(tokens=64)),
    tenants("c", arrivals=Arrivals(kind="bursty", rate=3.0), weight=2.0),
    engine=EngineKnobs(max_num_batched_tokens=256, max_num_seqs=8, adapter_pool_bytes=40 << 20),
    n_requests=150,
)


def test_equal_seeds_give_equal_reports() -> None:
    first, second = (json.dumps(summarise(BUSY, simulated(BUSY))) for _ in range(2))
    assert first == second
    other = replace(BUSY, seed=2)
    assert json.dumps(summarise(other, simulated(other))) != first


def test_time_is_virtual() -> None:
    idle = workload(tenants("t", arrivals=Arrivals(rate=0.001)), n_requests=20)
    began = time.perf_counter()
    world = simulated(idle)
    assert world.clock.now > 3600
    assert time.perf_counter() - began < 10


def test_every_request_has_one_end() -> None:
    world = simulated(BUSY)
    requests = summarise(BUSY, world)["requests"]
    assert requests["submitted"] == 150
    assert sum(requests[end] for end in ("completed", "refused", "expired", "aborted", "failed")) == 150
    assert requests["aborted"] > 0
    assert requests["failed"] == 0


def test_nothing_is_left_behind() -> None:
    world = simulated(BUSY)
    for ledger in (world.loop.kv.ledger, world.loop.residency.ledger):
        assert ledger[MemoryState.USED] == ledger[MemoryState.RESERVED] == ledger[MemoryState.IN_FLIGHT] == 0
    world.loop.kv.audit()
    assert not world.ends_at


def test_a_closed_loop_keeps_its_clients_in_flight() -> None:
    """A client whose answer ended in a step sends again before the next one."""
    described = workload(tenants("t", arrivals=Arrivals(kind="closed", concurrency=5), output=Lengths(value=40)))
    world = build_world(described)
    in_flight = []
    while "t" not in world.recorder.tenants or world.recorder.tenants["t"].submitted < 60:
        world.run(until=world.clock.now + 1e-6)  # a step at a time
        in_flight.append(len(world.recorder.open))
    assert max(in_flight) == 5
    assert in_flight.count(5) / len(in_flight) > 0.8


def test_an_answer_has_the_length_that_was_drawn() -> None:
    described = workload(tenants("t", output=Lengths(value=7), max_tokens=50), n_requests=20)
    world = simulated(described)
    assert world.recorder.tenants["t"].output_tokens == 140
    assert len(world.recorder.tenants["t"].gaps) == 120


def test_times_are_those_of_the_device() -> None:
    """One request alone: its prefill is its first token, and every further one takes a decode step."""
    described = workload(
        tenants(
            "t", arrivals=Arrivals(kind="closed", concurrency=1), prompt=Lengths(value=1024), output=Lengths(value=9)
        ),
        n_requests=1,
    )
    report = summarise(described, simulated(described))
    assert report["latency"]["ttft"]["mean"] == pytest.approx(0.0922, rel=0.01)
    assert report["latency"]["e2e"]["mean"] == pytest.approx(
        report["latency"]["ttft"]["mean"] + 8 * report["latency"]["tpot"]["mean"]
    )
    assert report["steps"] == 9


def test_targets_that_are_missed_are_not_good() -> None:
    described = workload(tenants("t"), slo=Slo(ttft_s=1e-6))
    goodput = summarise(described, simulated(described))["goodput"]
    assert goodput["met"] == 0
    assert goodput["missed"] == 60
    assert goodput["attainment"] == 0


def test_refused_requests_count_against_goodput_with_their_reasons() -> None:
    flood = workload(
        tenants("t", arrivals=Arrivals(rate=1000.0)),
        engine=EngineKnobs(max_queued_requests=10, max_num_seqs=4, max_num_batched_tokens=256),
        n_requests=300,
    )
    report = summarise(flood, simulated(flood))
    assert report["requests"]["refused"] > 100
    assert sum(report["refusals"].values()) == report["requests"]["refused"]
    assert report["goodput"]["attainment"] <= 1 - report["requests"]["refused"] / 300


def test_refused_clients_of_a_closed_loop_come_back_later() -> None:
    described = workload(
        tenants("t", arrivals=Arrivals(kind="closed", concurrency=30)),
        engine=EngineKnobs(max_queued_requests=4, max_num_seqs=4, max_num_batched_tokens=256),
        n_requests=200,
    )
    world = simulated(described)
    assert world.recorder.tenants["t"].submitted == 200
    assert world.recorder.tenants["t"].refused < 200


def test_shared_heads_are_found_in_the_prefix_cache() -> None:
    described = workload(tenants("t", shared_prefixes=SharedPrefixes(tokens=160), prompt=Lengths(value=200)))
    cache = summarise(described, simulated(described))["prefix_cache"]
    assert cache["queried_tokens"] == 60 * 200
    assert 0.6 < cache["hit_rate"] <= 0.8
    assert sum(cache["misses"].values()) >= 1


def test_a_small_pool_preempts_and_everything_still_ends() -> None:
    described = workload(
        tenants("t", arrivals=Arrivals(rate=50.0), prompt=Lengths(value=100), output=Lengths(value=200)),
        engine=EngineKnobs(
            kv_cache_bytes=80 * 16 * 57_344, max_num_seqs=16, max_num_batched_tokens=256, ttft_deadline=0.0
        ),
        n_requests=40,
    )
    report = summarise(described, simulated(described))
    assert report["requests"]["completed"] == 40
    assert report["kv"]["peak_used_share"] > 0.9
    assert report["preemptions"]["by_mode"]["swap"] + report["preemptions"]["by_mode"]["recompute"] > 0
    assert report["phases"]["all"]["hfu"] >= report["phases"]["all"]["mfu"]


def test_utilisations_are_of_one_piece() -> None:
    """MFU over MBU is intensity over the device's ridge, in every kind of step."""
    phases = summarise(BUSY, simulated(BUSY))["phases"]
    for kind in ("decode", "mixed", "prefill"):
        assert phases[kind]["mfu"] / phases[kind]["mbu"] == pytest.approx(phases[kind]["intensity"] / phases["ridge"])


def test_the_hosts_own_time_comes_on_top_of_each_step() -> None:
    described = workload(tenants("t", output=Lengths(value=9)), n_requests=1)
    quick, slow = simulated(described), simulated(replace(described, host_overhead_s=0.5))
    assert quick.n_steps == slow.n_steps == 9
    assert slow.clock.now - quick.clock.now == pytest.approx(9 * 0.5)
