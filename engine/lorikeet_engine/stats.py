"""An engine's figures as they leave it: what the socket carries, the metrics name and the pages show.

Totals count from the engine's start, so that any window is a difference of two readings.
"""

from __future__ import annotations

import msgspec

from lorikeet_engine.cost import DeviceProfile, ModelCost
from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.latency_bounds import BOUNDS_S as BOUNDS_S
from lorikeet_engine.latency_bounds import MEASURES as MEASURES
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.model_spec import ModelSpec


class AdapterResidency(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter that the engine knows: its state, bytes, and the requests that run on it or wait for it.

    `heat` is how many requests a minute started on it of late; what is long ago counts less.

    `state` is "cold" (its load has not begun), "loading", "host", "placing", "resident" or "draining".
    """

    tenant: str
    digest: str
    state: str
    bytes: int
    requests: int
    waiting: int
    heat: float


class TenantLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's queue. `service` is its virtual counter: tokens it was served, divided by its weight."""

    tenant: str
    waiting: int
    running: int
    service: float
    weight: float


class PrefixUse(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens that were looked up in the prefix cache, and those found; `adapter` is empty for the base model."""

    tenant: str
    adapter: str
    queried_tokens: int
    hit_tokens: int


class PrefixStats(msgspec.Struct, frozen=True, kw_only=True):
    """The prefix cache since the start. Each request counts once; what it finds again after a preemption is apart."""

    uses: list[PrefixUse]
    misses: dict[str, int]
    recomputed_hit_tokens: int


class KvTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of the KV pool since the start: those handed out to requests, and cached ones that made room for them."""

    allocated: int
    evicted: int


class AdapterTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What moving adapters has cost since the start.

    `stall_s` adds up the time that requests waited for nothing but their adapter; `longest_wait_s` is the worst.
    """

    loads: dict[str, int]
    evictions: dict[str, int]
    stall_s: float
    longest_wait_s: float


class PreemptionStats(msgspec.Struct, frozen=True, kw_only=True):
    """How often KV blocks ran out, by the answer ("swap", "recompute", "wait"), and what that cost."""

    by_mode: dict[str, int]
    recomputed_tokens: int
    swap_bytes: dict[str, int]


class WorkDone(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated work, from the model's structure and the steps' plans (`lorikeet_engine.cost`).

    Floats, because a fast GPU's operations outgrow 64 bits within hours.
    """

    flops: float
    lora_flops: float
    read_bytes: float
    write_bytes: float
    lora_bytes: float


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """How often something took how long: `counts[i]` up to `BOUNDS_S[i]`, the last one longer; not cumulative.

    `measure` is one of `MEASURES`, or "step", or "load" of adapters. `by` and `label` say whose: "kind" (base, adapter;
    of steps their kind), "tenant" or "adapter" (a digest): the busiest, "other", and "former" for what was counted of
    those that were among the busiest once; of loads "tier": where from, "disk" to host memory or "host" to the arena.
    One that counted nothing is left out, but for steps and loads.
    """

    measure: str
    by: str
    label: str
    counts: list[int]
    sum_s: float


class AdapterUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the busiest adapters has done since the start; `stall_s`: requests waited for it alone so long.

    `tokens` went through it, prompts' and answers'. `read_bytes` are those of steps that ran it, `row_flops` what its
    rows cost beside the base model. The one with an empty digest sums up all that are not told apart; another one with
    an empty digest and the tenant "former" is what was counted of those that were among the busiest once.
    """

    tenant: str
    digest: str
    tokens: int
    loads: int
    evictions: int
    stall_s: float
    read_bytes: float
    row_flops: float


class StepSample(msgspec.Struct, frozen=True, array_like=True):
    """One step that ran: when it ended on the engine's clock, how long it took, what it computed (`cost.StepShape`).

    `running`, `waiting` and `kv_used_bytes` are as it was planned.
    """

    end_s: float
    kind: str
    seconds: float
    n_decode: int
    decode_context: int
    n_prefill: int
    prefill_pairs: int
    prefill_context: int
    n_sampled: int
    lora_bytes: int
    lora_flops: int
    running: int
    waiting: int
    kv_used_bytes: int


class PromptHeads(msgspec.Struct, frozen=True, kw_only=True):
    """How alike the newest prompts of one tenant on one adapter are: why its prefix cache finds nothing.

    `common_tokens` is the longest head that a typical prompt shares with another one; `tokens` are those two prompts'
    first different ones. Nothing else of a prompt leaves the engine.
    """

    tenant: str
    adapter: str
    n_prompts: int
    mean_tokens: float
    common_tokens: int
    tokens: tuple[int, int] | None
    queried_tokens: int
    hit_tokens: int


class EngineDesign(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine was started with, and what it made of that.

    Attributes:
        knobs: every setting of `EngineConfig` that an operator may set, automatic ones with the value chosen.
        memory: the rows of the memory table, in bytes; they add up to `available_bytes`.
        n_blocks: KV blocks that requests can have.
        model: its shape.
        cost, device: the model's and the device's constants of `lorikeet_engine.cost`.
    """

    knobs: dict[str, int | float | str | bool]
    memory: list[tuple[str, int]]
    available_bytes: int
    n_blocks: int
    block_size: int
    block_bytes: int
    max_model_len: int
    max_num_seqs: int
    itemsize: int
    model: ModelSpec
    cost: ModelCost
    device: DeviceProfile


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's figures at one moment; totals count from its start.

    Attributes:
        seats: how many requests may run now; pressure on the KV pool lowers it below `max_seats`.
        swapped: preempted requests whose KV blocks lie in host memory.
        prompt_tokens_total, decode_tokens_total: computed ones; generated_tokens_total: sampled ones.
        tokens_per_second: sampled tokens over the last 10 s.
        refusals: requests not taken, by reason; `expired`: taken, but too late for their first token.
        unsettled: ended requests whose use nobody has put on record yet.
        step_time_error: how far the step-time model is off, relative; `ttft_error_s`: the TTFT prediction.
        adapters: if they were asked for, those that requests run on, wait for or began on of late, up to a thousand of
            them; a hundred at least, if the engine knows so many. `adapters_by_state` counts all that it knows.
        busiest_tenants: those that labels tell apart; the others are "other".
        adapter_uses: the busiest ones; bounded, whatever the engine knows.
        histograms: of latencies, and of steps by kind.
        costs: what all requests together have cost, counted from steps and ledgers and not from requests.
        kv_peak_bytes: the most of the KV pool that was in use at once.
        pinned_adapters: those that requests run on.
        fairness: Jain's index of the weighted service in the last minute, over tenants whose requests waited all along.
    """

    uptime_s: float
    running: int
    waiting: int
    swapped: int
    seats: int
    max_seats: int
    tenants: list[TenantLoad]
    prompt_tokens_total: int
    decode_tokens_total: int
    generated_tokens_total: int
    steps_total: int
    steps_by_kind: dict[str, int]
    step_seconds_by_kind: dict[str, float]
    tokens_per_second: float
    kv: LedgerSnapshot
    arena: LedgerSnapshot
    host: LedgerSnapshot
    swap: LedgerSnapshot
    prefix: PrefixStats
    adapters: list[AdapterResidency]
    adapter_traffic: AdapterTraffic
    preemptions: PreemptionStats
    refusals: dict[str, int]
    expired: int
    unsettled: int
    work_by_kind: dict[str, WorkDone]
    step_time_error: float
    ttft_error_s: float
    adapters_by_state: dict[str, int]
    adapter_uses: list[AdapterUse]
    busiest_tenants: list[str]
    histograms: list[Histogram]
    costs: CostVector
    kv_peak_bytes: int
    kv_traffic: KvTraffic
    pinned_adapters: int
    fairness: float
