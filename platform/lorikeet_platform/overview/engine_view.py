"""The engine's figures in the words of the page: slugs for tenants, `name:version` for digests. Pure functions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lorikeet_engine.client import EngineInfo, EngineStats
from lorikeet_engine.ledger_snapshot import LedgerSnapshot
from lorikeet_engine.stats import AdapterResidency, PrefixStats, PrefixUse
from lorikeet_platform.overview.schemas import (
    AdapterPrefixUse,
    AdapterTraffic,
    EngineOverview,
    Ledger,
    Preemptions,
    PrefixCache,
    Refusals,
    ResidencyCounts,
    ResidentAdapter,
    TenantBytes,
    TenantPrefixUse,
    TenantQueue,
)

SHOWN_DIGEST = 12  # characters, where a digest has no name
SHOWN_ADAPTERS = 100  # an engine may know thousands; the page is read every second


@dataclass(frozen=True, slots=True)
class Names:
    """Slugs by tenant id, and `name:number` by (tenant id, digest), of every ready version."""

    slugs: dict[str, str]
    versions: dict[tuple[str, str], str]

    def slug(self, tenant_id: str) -> str:
        return self.slugs.get(tenant_id, tenant_id)

    def adapter(self, tenant_id: str, digest: str) -> str:
        return self.versions.get((tenant_id, digest), digest[:SHOWN_DIGEST])


def engine_overview(info: EngineInfo, stats: EngineStats, names: Names) -> EngineOverview:
    return EngineOverview(
        state="ready",
        model=info.model_name,
        device=info.device,
        dtype=info.dtype,
        max_model_len=info.max_model_len,
        uptime_s=stats.uptime_s,
        running=stats.running,
        waiting=stats.waiting,
        swapped=stats.swapped,
        seats=stats.seats,
        max_seats=stats.max_seats,
        tokens_per_second=stats.tokens_per_second,
        prompt_tokens_total=stats.prompt_tokens_total,
        generated_tokens_total=stats.generated_tokens_total,
        steps_total=stats.steps_total,
        queues=_queues(stats, names),
        kv=_ledger(stats.kv, names),
        arena=_ledger(stats.arena, names),
        host=_ledger(stats.host, names),
        swap=_ledger(stats.swap, names),
        prefix=_prefix(stats.prefix, names, info.model_name),
        residency=_residency(stats, names),
        adapters=_adapters(stats.adapters, names),
        adapter_traffic=AdapterTraffic(
            loads=stats.adapter_traffic.loads,
            evictions=stats.adapter_traffic.evictions,
            stall_s=stats.adapter_traffic.stall_s,
            longest_wait_s=stats.adapter_traffic.longest_wait_s,
        ),
        preemptions=Preemptions(
            swap=stats.preemptions.by_mode.get("swap", 0),
            recompute=stats.preemptions.by_mode.get("recompute", 0),
            wait=stats.preemptions.by_mode.get("wait", 0),
            recomputed_tokens=stats.preemptions.recomputed_tokens,
            swap_out_bytes=stats.preemptions.swap_bytes.get("out", 0),
            swap_in_bytes=stats.preemptions.swap_bytes.get("in", 0),
        ),
        refusals=Refusals(by_reason=stats.refusals, expired=stats.expired),
    )


def _queues(stats: EngineStats, names: Names) -> list[TenantQueue]:
    queues = [
        TenantQueue(
            tenant=names.slug(load.tenant),
            waiting=load.waiting,
            running=load.running,
            weight=load.weight,
            service=load.service,
        )
        for load in stats.tenants
    ]
    return sorted(queues, key=lambda queue: queue.tenant)


def _ledger(snapshot: LedgerSnapshot, names: Names) -> Ledger:
    return Ledger(
        name=snapshot.name,
        capacity=snapshot.capacity,
        used=snapshot.used,
        reserved=snapshot.reserved,
        in_flight=snapshot.in_flight,
        cached=snapshot.cached,
        free=snapshot.free,
        shared=snapshot.shared,
        fragmentation=snapshot.fragmentation,
        external_fragmentation=snapshot.external_fragmentation,
        by_tenant=[TenantBytes(tenant=names.slug(key), bytes=n) for key, n in sorted(snapshot.by_tenant.items())],
    )


def _prefix(prefix: PrefixStats, names: Names, base_model: str) -> PrefixCache:
    by_tenant: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for use in prefix.uses:
        by_tenant[names.slug(use.tenant)][0] += use.queried_tokens
        by_tenant[names.slug(use.tenant)][1] += use.hit_tokens
    queried, hit = (sum(tokens[i] for tokens in by_tenant.values()) for i in (0, 1))
    busiest = sorted(prefix.uses, key=lambda use: use.queried_tokens, reverse=True)[:SHOWN_ADAPTERS]
    return PrefixCache(
        queried_tokens=queried,
        hit_tokens=hit,
        hit_rate=hit / queried if queried else None,
        recomputed_hit_tokens=prefix.recomputed_hit_tokens,
        by_tenant=[
            TenantPrefixUse(tenant=slug, queried_tokens=tokens[0], hit_tokens=tokens[1])
            for slug, tokens in sorted(by_tenant.items())
        ],
        by_adapter=[_adapter_use(use, names, base_model) for use in busiest],
        misses=prefix.misses,
    )


def _adapter_use(use: PrefixUse, names: Names, base_model: str) -> AdapterPrefixUse:
    return AdapterPrefixUse(
        tenant=names.slug(use.tenant),
        adapter=names.adapter(use.tenant, use.adapter) if use.adapter else base_model,
        queried_tokens=use.queried_tokens,
        hit_tokens=use.hit_tokens,
    )


def _residency(stats: EngineStats, names: Names) -> ResidencyCounts:
    """What drains may be out of service, and no ready version any more; it has requests, and so it is named."""
    states = Counter(stats.adapters_by_state)
    draining = {(adapter.tenant, adapter.digest) for adapter in stats.adapters if adapter.state == "draining"}
    n_warm = sum(states[state] for state in ("loading", "placing", "host", "resident"))
    return ResidencyCounts(
        cold=max(0, len(names.versions.keys() - draining) - n_warm),
        loading=states["loading"] + states["placing"],
        host=states["host"],
        resident=states["resident"],
        draining=states["draining"],
    )


def _adapters(known: Sequence[AdapterResidency], names: Names) -> list[ResidentAdapter]:
    busiest = sorted(known, key=lambda adapter: (adapter.requests + adapter.waiting, adapter.bytes), reverse=True)
    return [
        ResidentAdapter(
            tenant=names.slug(adapter.tenant),
            adapter=names.adapter(adapter.tenant, adapter.digest),
            digest=adapter.digest,
            state=adapter.state,
            bytes=adapter.bytes,
            requests=adapter.requests,
            waiting=adapter.waiting,
            heat=adapter.heat,
        )
        for adapter in busiest[:SHOWN_ADAPTERS]
    ]
