"""An engine's figures for tests of what shows them: every kind of figure is there, and no two are equal by chance."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec

from lorikeet_engine.cost_vector import COSTS, CostVector
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.simulation.shipped import load_model
from lorikeet_engine.stats import (
    BOUNDS_S,
    AdapterResidency,
    AdapterTraffic,
    AdapterUse,
    EngineDesign,
    EngineStats,
    Histogram,
    KvTraffic,
    PreemptionStats,
    PrefixStats,
    PrefixUse,
    TenantLoad,
    WorkDone,
)
from tests.support.scripted_engine_parts import COST, PROFILE

A_POOL = LedgerSnapshot(
    name="kv",
    capacity=1000,
    used=300,
    reserved=100,
    in_flight=0,
    cached=200,
    free=400,
    fragmentation=7,
    by_tenant={"anna": 450, "ben": 150},
    shared=64,
    external_fragmentation=9,
)


def resident(
    digest: str,
    *,
    tenant: str = "anna",
    state: str = "resident",
    requests: int = 0,
    waiting: int = 0,
    n_bytes: int = 64,
    heat: float = 0.0,
) -> AdapterResidency:
    return AdapterResidency(
        tenant=tenant, digest=digest, state=state, bytes=n_bytes, requests=requests, waiting=waiting, heat=heat
    )


def histogram(measure: str, by: str, label: str, *seconds: float) -> Histogram:
    """What was counted when something took so long each time."""
    counts = [0] * (len(BOUNDS_S) + 1)
    for each in seconds:
        counts[bisect_left(BOUNDS_S, each)] += 1
    return Histogram(measure=measure, by=by, label=label, counts=counts, sum_s=sum(seconds))


def adapter_use(digest: str, *, tenant: str = "anna", **figures: Any) -> AdapterUse:
    nothing: dict[str, Any] = dict.fromkeys(("tokens", "loads", "evictions"), 0)
    nothing |= dict.fromkeys(("stall_s", "read_bytes", "row_flops"), 0.0)
    return AdapterUse(tenant=tenant, digest=digest, **nothing | figures)


def engine_stats(**changes: Any) -> EngineStats:
    stats = EngineStats(
        uptime_s=12.5,
        running=2,
        waiting=1,
        swapped=3,
        seats=28,
        max_seats=32,
        tenants=[
            TenantLoad(tenant="anna", waiting=1, running=2, service=900.0, weight=3.0),
            TenantLoad(tenant="ben", waiting=0, running=0, service=840.0, weight=1.0),
        ],
        prompt_tokens_total=40,
        decode_tokens_total=48,
        generated_tokens_total=50,
        steps_total=9,
        steps_by_kind={"decode": 7, "prefill": 2},
        step_seconds_by_kind={"decode": 0.7, "prefill": 0.4},
        tokens_per_second=3.5,
        kv=A_POOL,
        arena=replace(A_POOL, name="adapters"),
        host=replace(A_POOL, name="host"),
        swap=replace(A_POOL, name="swap"),
        prefix=PrefixStats(
            uses=[
                PrefixUse(tenant="anna", adapter="", queried_tokens=100, hit_tokens=60),
                PrefixUse(tenant="anna", adapter="ab", queried_tokens=20, hit_tokens=0),
                PrefixUse(tenant="ben", adapter="", queried_tokens=80, hit_tokens=40),
            ],
            misses={"cold": 4, "salt": 1},
            recomputed_hit_tokens=16,
        ),
        adapters=[resident("ab", requests=2), resident("cd", state="host", waiting=1)],
        adapter_traffic=AdapterTraffic(
            loads={"disk": 5, "host": 6}, evictions={"room": 4}, stall_s=1.5, longest_wait_s=0.5
        ),
        preemptions=PreemptionStats(
            by_mode={"swap": 2, "recompute": 1, "wait": 8}, recomputed_tokens=33, swap_bytes={"out": 640, "in": 320}
        ),
        refusals={"tenant_queue": 11, "ttft_engine": 12},
        expired=13,
        unsettled=17,
        work_by_kind={
            "decode": WorkDone(flops=1e12, lora_flops=1e9, read_bytes=2e12, write_bytes=3e9, lora_bytes=4e9),
            "prefill": WorkDone(flops=6e12, lora_flops=6e9, read_bytes=7e12, write_bytes=8e9, lora_bytes=9e9),
        },
        step_time_error=0.03,
        ttft_error_s=0.25,
        adapters_by_state={},  # those of the adapters, below
        adapter_uses=[
            adapter_use("ab", tokens=70, loads=3, evictions=2, stall_s=1.25, read_bytes=1e6, row_flops=2e6),
            adapter_use("", tenant="", tokens=30, loads=8, evictions=2, stall_s=0.25, read_bytes=3e5, row_flops=4e5),
        ],
        busiest_tenants=["anna", "ben"],
        histograms=[
            histogram("ttft", "kind", "base", 0.05, 0.3),
            histogram("ttft", "kind", "adapter", 0.02),
            histogram("ttft", "tenant", "anna", 0.05, 0.02),
            histogram("ttft", "tenant", "other", 0.3),
            histogram("adapter_wait", "adapter", "ab", 0.01),
            histogram("step", "kind", "decode", 0.1, 0.12, 200.0),
            histogram("load", "tier", "disk", 0.4, 0.5),
            histogram("load", "tier", "host", 0.002),
        ],
        costs=CostVector(**{name: 1000.5 + i for i, name in enumerate(COSTS)}),
        kv_peak_bytes=350,
        kv_traffic=KvTraffic(allocated=640, evicted=21),
        pinned_adapters=3,
        fairness=0.75,
    )
    stats = msgspec.structs.replace(stats, **changes)
    by_state = changes.get("adapters_by_state", Counter(adapter.state for adapter in stats.adapters))
    return msgspec.structs.replace(stats, adapters_by_state=dict(by_state))


def engine_design(**changes: Any) -> EngineDesign:
    """A design whose numbers fit each other: 64 blocks of 4 tokens, 16 bytes of keys and values a token."""
    design = EngineDesign(
        knobs={"device": "cpu", "dtype": "float32", "max_num_seqs": 8, "enable_prefix_caching": True},
        memory=[("weights", 3000), ("adapter arena", 512), ("KV pool", 65 * 64), ("left", 328)],
        available_bytes=8000,
        n_blocks=64,
        block_size=4,
        block_bytes=64,
        max_model_len=128,
        max_num_seqs=8,
        itemsize=4,
        model=load_model("smollm2-135m"),
        cost=COST,
        device=PROFILE,
    )
    return msgspec.structs.replace(design, **changes)
