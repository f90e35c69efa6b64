"""Which metrics there are, each with its name, its words and where its numbers come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from lorikeet_engine.cost import DeviceProfile
from lorikeet_engine.cost_vector import COSTS
from lorikeet_engine.errors import REFUSAL_REASONS
from lorikeet_engine.latency_bounds import MEASURES
from lorikeet_engine.memory.kv.prefix_index import MissReason
from lorikeet_engine.metrics.shapes import COARSE, FINE, HistogramFamily, counter, counters, gauge, gauges
from lorikeet_engine.stats import AdapterUse, EngineStats

POOL_STATES = ("used", "reserved", "in_flight", "cached", "free")
RESIDENCIES = ("cold", "loading", "host", "placing", "resident", "draining")
COMPUTING = ("prefill", "decode", "mixed")  # kinds of steps; the others move blocks only, or failed
OTHER, FORMER = "other", "former"
DIGEST_CHARS = 12  # of an adapter's digest, as a label
LATENCIES = {
    "queue": "from when the loop took it, between two steps, until it began to run",
    "adapter_wait": "of its queue in which it waited for nothing but its adapter",
    "prefill": "from when it began to run until its first token",
    "ttft": "from when the loop took it, between two steps, until its first token",
    "itl": "between two tokens of it",
    "tpot": "between two tokens of it in the mean, of those that ended",
    "e2e": "from when the loop took it, between two steps, until its last token",
}
LOADS = "Seconds to bring an adapter one tier up: from disk to host memory, or from the host to the arena"
COST_TEXTS = {
    "prefill_flops": "Floating point operations for prompts, adapters included",
    "decode_flops": "Floating point operations for answers, adapters included",
    "prefill_read_bytes": "Bytes read to compute prompts",
    "decode_read_bytes": "Bytes read to compute answers",
    "write_bytes": "Bytes of keys and values written",
    "kv_byte_seconds": "KV memory held or promised, times how long",
    "adapter_byte_seconds": "Arena memory of adapters in use, times how long",
    "load_bytes": "Bytes copied into the arena for requests",
    "wasted_flops": "Floating point operations that computed again what a preemption had dropped",
    "swap_bytes": "KV bytes copied to and from host memory",
}


Family = Metric | HistogramFamily


def families(stats: EngineStats) -> Iterator[Family]:
    """Everything that the engine tells Prometheus of what it does; see `process` for the rest."""
    yield from _engine(stats)
    yield from _latencies(stats)
    yield from _tenants(stats)
    yield from _pools(stats)
    yield from _prefix(stats)
    yield from _adapters(stats)
    yield from _adapter_uses(stats)
    yield from _pressure(stats)
    yield from _work(stats)
    yield from _costs(stats)


def process(device: DeviceProfile, *, turn_age_s: float) -> Iterator[Family]:
    """What the loop cannot tell of itself: how long ago it turned, and what utilisation refers to."""
    yield gauge("engine_last_turn_age_seconds", "Seconds since the engine's loop turned last", turn_age_s)
    yield gauge("device_peak_flops", "The device's dense peak, which MFU refers to, in FLOP/s", device.peak_flops)
    yield gauge(
        "device_peak_bandwidth_bytes", "The device's peak, which MBU refers to, in bytes/s", device.peak_bandwidth
    )


def _engine(stats: EngineStats) -> Iterator[Family]:
    yield gauge("engine_uptime_seconds", "Seconds since the engine started", stats.uptime_s)
    yield gauge("engine_running_requests", "Requests in the running batch", stats.running)
    yield gauge("engine_waiting_requests", "Requests in the queue", stats.waiting)
    yield gauge("engine_swapped_requests", "Preempted requests whose KV blocks lie in host memory", stats.swapped)
    yield gauge("engine_seats", "Requests that may run now", stats.seats)
    yield gauge("engine_max_seats", "Requests that may run without memory pressure", stats.max_seats)
    yield gauge("engine_unsettled_requests", "Ended requests whose use is not on record yet", stats.unsettled)
    yield counter("engine_prompt_tokens", "Prompt tokens computed", stats.prompt_tokens_total)
    yield counter(
        "engine_decode_tokens", "Tokens of answers computed, to sample the next one", stats.decode_tokens_total
    )
    yield counter("engine_generated_tokens", "Tokens sampled", stats.generated_tokens_total)
    yield counters("engine_steps", "Steps by what they computed", "kind", stats.steps_by_kind)
    yield counters("engine_step_seconds", "Time that steps took, by kind", "kind", stats.step_seconds_by_kind)
    yield gauge("engine_step_time_error_ratio", "Relative error of the step-time model", stats.step_time_error)
    yield gauge("engine_ttft_error_seconds", "Error of predicted times to the first token", stats.ttft_error_s)
    computed = stats.prompt_tokens_total + stats.decode_tokens_total
    read = sum(work.read_bytes for work in stats.work_by_kind.values())
    steps = sum(stats.steps_by_kind.get(kind, 0) for kind in COMPUTING)
    yield gauge("engine_tokens_per_step", "Tokens computed in a step since the start", computed / max(1, steps))
    yield gauge(
        "engine_read_bytes_per_token", "Bytes read for a token computed since the start", read / max(1, computed)
    )


def _latencies(stats: EngineStats) -> Iterator[Family]:
    by: dict[tuple[str, str], HistogramFamily] = {
        ("step", "kind"): HistogramFamily("engine_step_duration_seconds", "How long a step took", "kind"),
        ("load", "tier"): HistogramFamily("adapter_load_seconds", LOADS, "tier"),
    }
    for label, bins in (("kind", FINE), ("tenant", COARSE), ("adapter", COARSE)):
        for measure in MEASURES:
            name, text = _latency_name(measure, label), f"Seconds of an answer, by {label}: {LATENCIES[measure]}"
            by[measure, label] = HistogramFamily(name, text, label, bins)
    for histogram in stats.histograms:
        if histogram.by in ("tenant", "adapter") and histogram.label == FORMER:
            continue  # the past of others: a leap of it would look like work
        label = histogram.label[:DIGEST_CHARS] if histogram.by == "adapter" else histogram.label
        by[histogram.measure, histogram.by].add(label, histogram.counts, histogram.sum_s)
    yield from by.values()


def _latency_name(measure: str, by: str) -> str:
    owner = "engine" if by == "kind" else by
    return f"{measure}_seconds" if measure.startswith(f"{owner}_") else f"{owner}_{measure}_seconds"


def _by_tenant(stats: EngineStats) -> Callable[[Mapping[str, int]], Counter[str]]:
    """Adds up what belongs to one label."""
    named = frozenset(stats.busiest_tenants)

    def labelled(amounts: Mapping[str, int]) -> Counter[str]:
        by_label: Counter[str] = Counter()
        for tenant, amount in amounts.items():
            by_label[tenant if tenant in named else OTHER] += amount
        return by_label

    return labelled


def _tenants(stats: EngineStats) -> Iterator[Family]:
    labelled = _by_tenant(stats)
    waiting = labelled({load.tenant: load.waiting for load in stats.tenants})
    running = labelled({load.tenant: load.running for load in stats.tenants})
    service = [load.service for load in stats.tenants] or [0.0]
    yield gauges("tenant_waiting_requests", "Requests in the queue by tenant", "tenant", waiting)
    yield gauges("tenant_running_requests", "Requests in the running batch by tenant", "tenant", running)
    yield gauge(
        "engine_service_spread", "Weighted tokens between most and least served tenant", max(service) - min(service)
    )
    yield gauge(
        "fairness_index", "How evenly the tenants that compete were served of late, 1 = all alike", stats.fairness
    )


def _pools(stats: EngineStats) -> Iterator[Family]:
    by_state = GaugeMetricFamily(
        "lorikeet_pool_bytes", "Bytes of a memory pool by state; the states add up", labels=["pool", "state"]
    )
    by_tenant = GaugeMetricFamily(
        "lorikeet_tenant_pool_bytes", "Bytes of a memory pool that a tenant holds", labels=["pool", "tenant"]
    )
    fragmentation = GaugeMetricFamily(
        "lorikeet_pool_fragmentation_bytes",
        "Bytes that cannot be used: held inside allocations, or free outside the largest free run",
        labels=["pool", "kind"],
    )
    ledgers = (stats.kv, stats.arena, stats.host, stats.swap)
    labelled = _by_tenant(stats)
    for ledger in ledgers:
        for state in POOL_STATES:
            by_state.add_metric([ledger.name, state], getattr(ledger, state))
        for tenant, held in labelled(ledger.by_tenant).items():
            by_tenant.add_metric([ledger.name, tenant], held)
        fragmentation.add_metric([ledger.name, "internal"], ledger.fragmentation)
        fragmentation.add_metric([ledger.name, "external"], ledger.external_fragmentation)
    yield by_state
    yield by_tenant
    yield fragmentation
    yield gauges(
        "pool_shared_bytes",
        "Bytes that several requests use at once",
        "pool",
        {ledger.name: ledger.shared for ledger in ledgers},
    )
    yield counter(
        "kv_allocated_blocks", "KV blocks handed out to requests, shared ones once", stats.kv_traffic.allocated
    )
    yield counter("kv_evicted_blocks", "Cached KV blocks that made room for others", stats.kv_traffic.evicted)
    yield gauge("kv_peak_bytes", "The most of the KV pool that was in use at once", stats.kv_peak_bytes)


def _prefix(stats: EngineStats) -> Iterator[Family]:
    prefix = stats.prefix
    queried = sum(use.queried_tokens for use in prefix.uses)
    hit = sum(use.hit_tokens for use in prefix.uses)
    yield counter("prefix_queried_tokens", "Prompt tokens looked up in the prefix cache", queried)
    yield counter("prefix_hit_tokens", "Prompt tokens found in the prefix cache", hit)
    yield counter("prefix_recomputed_hit_tokens", "Tokens found again after a preemption", prefix.recomputed_hit_tokens)
    misses = dict.fromkeys(map(str, MissReason), 0) | prefix.misses
    yield counters("prefix_misses", "Prompts by why their first missing block was missing", "reason", misses)


def _adapters(stats: EngineStats) -> Iterator[Family]:
    traffic = stats.adapter_traffic
    states = dict.fromkeys(RESIDENCIES, 0) | stats.adapters_by_state
    yield gauges("adapters", "Adapters the engine knows, by residency", "state", states)
    yield gauge("pinned_adapters", "Adapters in the arena that requests run on", stats.pinned_adapters)
    yield counters("adapter_loads", "Adapters brought into the arena, by where they came from", "tier", traffic.loads)
    yield counters("adapter_evictions", "Adapters dropped from the arena, by reason", "reason", traffic.evictions)
    yield counter("adapter_stall_seconds", "Time that requests waited for nothing but their adapter", traffic.stall_s)
    yield gauge("adapter_longest_wait_seconds", "The longest such wait so far", traffic.longest_wait_s)


def _adapter_uses(stats: EngineStats) -> Iterator[Family]:
    labelled: dict[str, list[AdapterUse]] = {}
    for use in stats.adapter_uses:
        if use.tenant == FORMER and not use.digest:
            continue
        labelled.setdefault(use.digest[:DIGEST_CHARS] or use.tenant or OTHER, []).append(use)
    totals: tuple[tuple[str, str, Callable[[AdapterUse], float]], ...] = (
        ("tokens", "Tokens that went through an adapter", lambda use: use.tokens),
        ("loads", "Times an adapter was brought into the arena", lambda use: use.loads),
        ("evictions", "Times an adapter left the arena", lambda use: use.evictions),
        ("stall_seconds", "Time that requests waited for nothing but an adapter", lambda use: use.stall_s),
        ("read_bytes", "Bytes of an adapter read by steps", lambda use: use.read_bytes),
        ("flops", "Floating point operations of an adapter", lambda use: use.row_flops),
    )
    for name, text, total in totals:
        values = {label: float(sum(map(total, uses))) for label, uses in labelled.items()}
        yield counters(f"adapter_use_{name}", f"{text}, of the busiest by digest", "adapter", values)


def _costs(stats: EngineStats) -> Iterator[Family]:
    for name in COSTS:
        yield counter(f"cost_{name}", f"{COST_TEXTS[name]}; all requests together", getattr(stats.costs, name))


def _pressure(stats: EngineStats) -> Iterator[Family]:
    preemptions = stats.preemptions
    yield counters("preemptions", "Times that KV blocks ran out, by the answer", "mode", preemptions.by_mode)
    yield counter("recomputed_tokens", "Tokens computed again after preemptions", preemptions.recomputed_tokens)
    yield counters("swap_bytes", "KV bytes copied to and from host memory", "direction", preemptions.swap_bytes)
    refusals = dict.fromkeys(REFUSAL_REASONS, 0) | stats.refusals
    yield counters("refusals", "Requests not taken, by reason", "reason", refusals)
    yield counter("expired_requests", "Requests dropped from the queue at their deadline", stats.expired)


def _work(stats: EngineStats) -> Iterator[Family]:
    work = stats.work_by_kind.items()
    for name, text, by_kind in (
        ("estimated_flops", "Floating point operations, adapters included", {k: w.flops for k, w in work}),
        ("estimated_lora_flops", "Floating point operations of adapters", {k: w.lora_flops for k, w in work}),
        ("estimated_read_bytes", "Bytes read by steps, adapters included", {k: w.read_bytes for k, w in work}),
        ("estimated_write_bytes", "Bytes of keys and values written", {k: w.write_bytes for k, w in work}),
        ("estimated_lora_read_bytes", "Bytes of adapters read by steps", {k: w.lora_bytes for k, w in work}),
    ):
        yield counters(name, text, "kind", by_kind)
