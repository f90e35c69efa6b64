"""Reads an engine's figures off its loop: what the socket, the metrics and the overview show. Counts nothing itself."""

from __future__ import annotations

from collections.abc import Sequence

from lorikeet_engine.cost import StepWork
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.adapters.entry import KnownAdapter
from lorikeet_engine.observing.observer import Bins
from lorikeet_engine.stats import (
    AdapterResidency,
    AdapterTraffic,
    AdapterUse,
    EngineStats,
    Histogram,
    KvTraffic,
    PreemptionStats,
    PrefixStats,
    PrefixUse,
    PromptHeads,
    StepSample,
    TenantLoad,
    WorkDone,
)

MOST_PROMPT_HEADS = 20


def measure(
    loop: EngineLoop,
    *,
    now: float,
    uptime_s: float,
    unsettled: int,
    names_adapters: bool = False,
    by_owner: bool = False,
) -> EngineStats:
    """The figures now. `names_adapters`: the adapters in demand; `by_owner`: prefixes by tenant and adapter.

    Without adapters it takes about as long for ten known ones as for ten thousand.
    """
    scheduler, totals, counters = loop.scheduler, loop.counters, loop.scheduler.counters
    observed = loop.observer.observed(now)
    return EngineStats(
        uptime_s=uptime_s,
        running=scheduler.n_running,
        waiting=scheduler.n_waiting,
        swapped=scheduler.n_swapped,
        seats=scheduler.seats,
        max_seats=scheduler.max_seats,
        tenants=_tenants(loop),
        prompt_tokens_total=totals.prompt_tokens,
        decode_tokens_total=totals.decode_tokens,
        generated_tokens_total=totals.generated_tokens,
        steps_total=totals.steps.total(),
        steps_by_kind=dict(totals.steps),
        step_seconds_by_kind=dict(totals.step_seconds),
        tokens_per_second=loop.tokens_per_second(now),
        kv=loop.kv.snapshot(),
        arena=loop.residency.snapshot(),
        host=loop.residency.host_ledger.snapshot(),
        swap=loop.kv.swap_snapshot(),
        prefix=_prefix(loop, by_owner=by_owner),
        adapters=_adapters(loop, now, loop.residency.overview(now)) if names_adapters else [],
        adapters_by_state=loop.residency.by_state(),
        adapter_uses=[AdapterUse(**use._asdict()) for use in observed.uses],
        busiest_tenants=observed.tenants,
        adapter_traffic=_adapter_traffic(loop),
        preemptions=PreemptionStats(
            by_mode=dict(counters.preemptions),
            recomputed_tokens=counters.recomputed_tokens,
            swap_bytes=dict(counters.swap_bytes),
        ),
        refusals=dict(counters.refusals),
        expired=counters.expired,
        unsettled=unsettled,
        work_by_kind={kind: _work(work) for kind, work in totals.work.items()},
        step_time_error=scheduler.timing.error,
        ttft_error_s=counters.ttft_error_s,
        costs=scheduler.costing.totals(),
        histograms=[_histogram(bins) for bins in observed.bins],
        kv_peak_bytes=observed.kv_peak_bytes,
        kv_traffic=KvTraffic(allocated=loop.kv.n_allocated, evicted=loop.kv.n_evicted),
        pinned_adapters=scheduler.n_adapters,
        fairness=observed.fairness,
    )


def recent_steps(loop: EngineLoop, after_s: float) -> list[StepSample]:
    """The steps that ended after then, as far as they are remembered; oldest first."""
    return [StepSample(*step) for step in loop.observer.steps_after(after_s)]


def prompt_heads(loop: EngineLoop) -> list[PromptHeads]:
    """How alike the newest prompts are, of those tenants and adapters that look most up in the prefix cache."""
    counters = loop.scheduler.counters
    queries, hits = counters.prefix_queries, counters.prefix_hits
    alike = loop.observer.prompts(MOST_PROMPT_HEADS, lambda whose: queries[whose])
    return [
        PromptHeads(
            tenant=tenant,
            adapter=adapter,
            n_prompts=found.n_prompts,
            mean_tokens=found.mean_tokens,
            common_tokens=found.common_tokens,
            tokens=found.tokens,
            queried_tokens=queries[tenant, adapter],
            hit_tokens=hits[tenant, adapter],
        )
        for (tenant, adapter), found in alike
    ]


def _histogram(bins: Bins) -> Histogram:
    return Histogram(measure=bins.measure, by=bins.by, label=bins.label, counts=bins.counts, sum_s=bins.sum_s)


def _tenants(loop: EngineLoop) -> list[TenantLoad]:
    return [
        TenantLoad(
            tenant=load.tenant,
            waiting=load.waiting,
            running=load.running,
            service=load.service,
            weight=load.weight,
        )
        for load in loop.scheduler.tenants()
    ]


def _prefix(loop: EngineLoop, *, by_owner: bool) -> PrefixStats:
    counters = loop.scheduler.counters
    queries, hits = counters.prefix_queries, counters.prefix_hits
    if by_owner:
        uses = [
            PrefixUse(tenant=tenant, adapter=adapter, queried_tokens=queried, hit_tokens=hits[tenant, adapter])
            for (tenant, adapter), queried in queries.items()
        ]
    else:
        uses = [PrefixUse(tenant="", adapter="", queried_tokens=queries.total(), hit_tokens=hits.total())]
    return PrefixStats(
        uses=uses,
        misses={str(reason): count for reason, count in counters.misses.items()},
        recomputed_hit_tokens=counters.recomputed_hits,
    )


def _adapter_traffic(loop: EngineLoop) -> AdapterTraffic:
    counters = loop.scheduler.counters
    return AdapterTraffic(
        loads=dict(loop.residency.loads),
        evictions=dict(loop.residency.evictions),
        stall_s=counters.adapter_stall_s,
        longest_wait_s=counters.longest_adapter_wait_s,
    )


def _work(work: StepWork) -> WorkDone:
    return WorkDone(
        flops=float(work.flops),
        lora_flops=float(work.lora_flops),
        read_bytes=float(work.read_bytes),
        write_bytes=float(work.write_bytes),
        lora_bytes=float(work.lora_bytes),
    )


def known_adapter(loop: EngineLoop, key: AdapterKey, now: float) -> AdapterResidency | None:
    """One adapter; None for one that the engine does not know."""
    return next(iter(_adapters(loop, now, loop.residency.overview(only=key))), None)


def _adapters(loop: EngineLoop, now: float, known: Sequence[KnownAdapter]) -> list[AdapterResidency]:
    residency = loop.residency
    return [
        AdapterResidency(
            tenant=key.tenant,
            digest=key.digest,
            state=state,
            bytes=n_bytes,
            requests=pins,
            waiting=waiting - (key in loop.warming),  # it waits like a request, but is none
            heat=residency.heat_of(key, now),
        )
        for key, state, n_bytes, pins, waiting in known
    ]
