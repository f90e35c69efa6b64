"""Windows of an engine that nobody ran, for rules and figures: quiet in everything but what a test says."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.stats import (
    BOUNDS_S,
    AdapterTraffic,
    AdapterUse,
    EngineStats,
    Histogram,
    PreemptionStats,
    PrefixStats,
    PrefixUse,
    PromptHeads,
    StepSample,
    WorkDone,
)
from lorikeet_platform.doctor.examined import Seen, Surroundings
from lorikeet_platform.engine_watch.window import Reading, Window
from tests.support.engine_figures import A_POOL, engine_design, engine_stats

SECONDS = 120.0
KNOBS: Mapping[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "threads": 2,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "max_adapters_per_step": 4,
    "max_queued_requests": 100,
    "max_queued_tokens": 10_000,
    "ttft_deadline": 10.0,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "kv_cache_bytes": 4096,
    "adapter_pool_bytes": 1024,
    "host_adapter_cache_bytes": 1024,
}
PLENTY = [("KV pool", 4096), ("left", 1 << 34)]
EMPTY_POOL = replace(A_POOL, used=0, reserved=0, cached=0, free=1000, by_tenant={}, shared=0)


def quiet_stats(**changes: Any) -> EngineStats:
    """An engine that has done nothing yet; `changes` are fields of `EngineStats`."""
    quiet: dict[str, Any] = {
        "uptime_s": 100.0,
        "running": 0,
        "waiting": 0,
        "swapped": 0,
        "seats": 8,
        "max_seats": 8,
        "tenants": [],
        "prompt_tokens_total": 0,
        "generated_tokens_total": 0,
        "steps_total": 0,
        "steps_by_kind": {},
        "step_seconds_by_kind": {},
        "tokens_per_second": 0.0,
        **{name: replace(EMPTY_POOL, name=name) for name in ("kv", "arena", "host", "swap")},
        "prefix": prefix(),
        "adapters": [],
        "adapter_traffic": traffic(),
        "preemptions": preempted(),
        "refusals": {},
        "expired": 0,
        "unsettled": 0,
        "work_by_kind": {},
        "step_time_error": 0.0,
        "ttft_error_s": 0.0,
        "adapters_by_state": {},
        "adapter_uses": [],
        "busiest_tenants": [],
        "histograms": [],
        "costs": CostVector(),
        "kv_peak_bytes": 0,
        "fairness": 1.0,
    }
    return engine_stats(**quiet | changes)


def a_window(
    after: Mapping[str, Any],
    *,
    before: Mapping[str, Any] | None = None,
    steps: Sequence[StepSample] = (),
    between: Sequence[Mapping[str, Any]] = (),
    seconds: float = SECONDS,
) -> Window:
    """From `before` to `after`, with readings `between` at equal times."""
    moments = [before or {}, *between, after]
    pause = seconds / (len(moments) - 1)
    readings = [
        Reading(1000.0 + i * pause, i * pause, quiet_stats(**{"uptime_s": 100.0 + i * pause, **moment}))
        for i, moment in enumerate(moments)
    ]
    return Window(readings[0].stats, readings[-1].stats, seconds, steps, readings)


def seen(
    after: Mapping[str, Any] | None = None,
    *,
    before: Mapping[str, Any] | None = None,
    steps: Sequence[StepSample] = (),
    between: Sequence[Mapping[str, Any]] = (),
    seconds: float = SECONDS,
    prompts: Sequence[PromptHeads] = (),
    around: Surroundings | None = None,
    knobs: Mapping[str, Any] | None = None,
    **design: Any,
) -> Seen:
    """`design`: fields of `EngineDesign`."""
    window = a_window(after or {}, before=before, steps=steps, between=between, seconds=seconds)
    described = engine_design(**{"knobs": {**KNOBS, **(knobs or {})}, "memory": PLENTY, **design})
    return Seen(window, described, prompts, around or Surroundings())


def times(measure: str, seconds: Sequence[float], *, by: str = "kind", label: str = "base") -> Histogram:
    counts = [0] * (len(BOUNDS_S) + 1)
    for value in seconds:
        counts[bisect_left(BOUNDS_S, value)] += 1
    return Histogram(measure=measure, by=by, label=label, counts=counts, sum_s=sum(seconds))


def a_step(**changes: Any) -> StepSample:
    """A step that decodes for four requests."""
    step = StepSample(
        end_s=1.0,
        kind="decode",
        seconds=0.01,
        n_decode=4,
        decode_context=80,
        n_prefill=0,
        prefill_pairs=0,
        prefill_context=0,
        n_sampled=4,
        lora_bytes=0,
        lora_flops=0,
        running=4,
        waiting=0,
        kv_used_bytes=0,
    )
    return msgspec.structs.replace(step, **changes)


def work(read_bytes: float = 0.0, flops: float = 0.0, write_bytes: float = 0.0) -> WorkDone:
    return WorkDone(flops=flops, lora_flops=0.0, read_bytes=read_bytes, write_bytes=write_bytes, lora_bytes=0.0)


def preempted(*, tokens: int = 0, **by_mode: int) -> PreemptionStats:
    return PreemptionStats(by_mode=by_mode, recomputed_tokens=tokens, swap_bytes={})


def traffic(*, disk: int = 0, host: int = 0, room: int = 0, stall_s: float = 0.0) -> AdapterTraffic:
    return AdapterTraffic(
        loads={"disk": disk, "host": host}, evictions={"room": room}, stall_s=stall_s, longest_wait_s=stall_s
    )


def prefix(queried: int = 0, hit: int = 0, **misses: int) -> PrefixStats:
    uses = [PrefixUse(tenant="anna", adapter="", queried_tokens=queried, hit_tokens=hit)]
    return PrefixStats(uses=uses, misses=misses, recomputed_hit_tokens=0)


def heads(common: int, tokens: tuple[int, int] | None, *, mean: float = 64.0, n: int = 16) -> PromptHeads:
    return PromptHeads(
        tenant="anna",
        adapter="",
        n_prompts=n,
        mean_tokens=mean,
        common_tokens=common,
        tokens=tokens,
        queried_tokens=0,
        hit_tokens=0,
    )


def use(digest: str, *, tokens: int = 0, read_bytes: float = 0.0, loads: int = 0, tenant: str = "anna") -> AdapterUse:
    return AdapterUse(
        tenant=tenant,
        digest=digest,
        tokens=tokens,
        loads=loads,
        evictions=0,
        stall_s=0.0,
        read_bytes=read_bytes,
        row_flops=0.0,
    )
