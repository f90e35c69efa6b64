"""The report of a simulation as plain values, ready for JSON.

Refused and expired requests count against goodput: shedding load must not look like serving it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from lorikeet_engine.cost import DeviceProfile, StepWork, attainment, goodput, intensity, jain_index, mbu, mfu, ridge
from lorikeet_engine.simulation.assembly import Simulation
from lorikeet_engine.simulation.report.recorder import Recorder, TenantRecord
from lorikeet_engine.simulation.report.samples import Gaps, distribution, gap_distribution, mean, percentile
from lorikeet_engine.simulation.static_batching import StaticRun
from lorikeet_engine.simulation.workload.description import Workload

Values = dict[str, Any]
OUTPUT_PRICE = 2  # an output token weighs as much as so many prompt tokens, in the share that a tenant received


def summarise(workload: Workload, world: Simulation) -> Values:
    """Everything that the run showed; times in seconds, sizes in bytes."""
    recorder, seconds = world.recorder, max(world.clock.now, 1e-9)
    tenants = sorted(recorder.tenants.values(), key=lambda record: record.tenant)
    return {
        "workload": workload.name,
        "model": workload.model,
        "device": workload.device,
        "seed": workload.seed,
        "virtual_seconds": world.clock.now,
        "steps": world.n_steps,
        "requests": _requests(tenants, len(recorder.open)),
        "latency": _latency(tenants),
        "ttft_prediction": _prediction(recorder),
        "goodput": _goodput(tenants, seconds),
        "throughput": _throughput(tenants, world, seconds),
        "fairness": {"jain_index": jain_index([_service(record) for record in tenants])},
        "kv": _kv(world),
        "prefix_cache": _prefix_cache(world),
        "adapters": _adapters(world),
        "preemptions": _preemptions(world),
        "refusals": dict(recorder.refusals),
        "failures": dict(recorder.failures),
        "phases": _phases(world),
        "tenants": [_tenant(record, seconds) for record in tenants],
        "timeline": [asdict(sample) for sample in recorder.samples],
    }


def summarise_static(run: StaticRun, batch_size: int) -> Values:
    """The same requests in static batches: when all was done, and what was wasted on the way."""
    return {
        "batch_size": batch_size,
        "seconds": run.seconds,
        "output_tokens_per_s": run.output_tokens / max(run.seconds, 1e-9),
        "effective_batch": run.mean_effective_batch,
        "wasted_row_share": 1 - run.efficiency,
        "padding_share": run.padding_share,
        "blocked_seconds_per_request": run.blocked_s / max(len(run.e2e), 1),
        "e2e": distribution(run.e2e),
        "effective_batch_over_time": [list(point) for point in run.live],
    }


def _requests(records: Sequence[TenantRecord], n_open: int) -> Values:
    return {
        "submitted": sum(r.submitted for r in records),
        "completed": sum(r.met + r.missed for r in records),
        "refused": sum(r.refused for r in records),
        "expired": sum(r.expired for r in records),
        "aborted": sum(r.aborted for r in records),
        "failed": sum(r.failed for r in records),
        "open": n_open,
    }


def _joined(parts: Iterable[array[float]]) -> list[float]:
    return [value for part in parts for value in part]


def _latency(records: Sequence[TenantRecord]) -> Values:
    return {
        "ttft": distribution(_joined(r.ttft for r in records)),
        "queue": distribution(_joined(r.queue for r in records)),
        "itl": gap_distribution(Gaps().merge(r.gaps for r in records)),
        "tpot": distribution(_joined(r.tpot for r in records)),
        "e2e": distribution(_joined(r.e2e for r in records)),
    }


def _prediction(recorder: Recorder) -> Values:
    """How far the predicted time to the first token was off, for requests that got one."""
    errors = [predicted - actual for predicted, actual in zip(recorder.predicted, recorder.actual, strict=True)]
    absolute = sorted(abs(error) for error in errors)
    actual = mean(recorder.actual)
    return {
        "requests": len(errors),
        "mean_actual": actual,
        "mean_predicted": mean(recorder.predicted),
        "mean_error": mean(errors),
        "mean_absolute_error": mean(absolute),
        "p50_absolute_error": percentile(absolute, 0.5),
        "p90_absolute_error": percentile(absolute, 0.9),
        "p99_absolute_error": percentile(absolute, 0.99),
        "relative_error": mean(absolute) / actual if actual else 0.0,
    }


def _goodput(records: Sequence[TenantRecord], seconds: float) -> Values:
    met, missed = sum(r.met for r in records), sum(r.missed for r in records)
    refused, expired = sum(r.refused for r in records), sum(r.expired for r in records)
    return {
        "requests_per_s": goodput(met, seconds),
        "output_tokens_per_s": goodput(sum(r.good_tokens for r in records), seconds),
        "met": met,
        "missed": missed,
        "refused": refused,
        "expired": expired,
        "attainment": attainment(met=met, missed=missed, rejected=refused, expired=expired),
    }


def _throughput(records: Sequence[TenantRecord], world: Simulation, seconds: float) -> Values:
    counters = world.loop.counters
    return {
        "output_tokens_per_s": world.recorder.output_tokens / seconds,
        "computed_prompt_tokens_per_s": counters.prompt_tokens / seconds,
        "admitted_prompt_tokens_per_s": sum(r.prompt_tokens for r in records) / seconds,
        "iterations_per_s": counters.steps.total() / seconds,
    }


def _service(record: TenantRecord) -> float:
    computed = record.prompt_tokens - record.cached_tokens + OUTPUT_PRICE * record.output_tokens
    return computed / record.weight


def _kv(world: Simulation) -> Values:
    kv, samples = world.loop.kv, world.recorder.samples
    return {
        "capacity_bytes": kv.ledger.capacity,
        "capacity_tokens": kv.ledger.capacity // kv.block_bytes * kv.block_size,
        "block_tokens": kv.block_size,
        "peak_used_share": world.recorder.kv_peak,
        "mean_used_share": mean([sample.kv_used for sample in samples]),
    }


def _prefix_cache(world: Simulation) -> Values:
    counters = world.loop.scheduler.counters
    queried, hit = counters.prefix_queries.total(), counters.prefix_hits.total()
    return {
        "queried_tokens": queried,
        "hit_tokens": hit,
        "hit_rate": hit / queried if queried else 0.0,
        "misses": {str(reason): n for reason, n in counters.misses.items()},
        "recomputed_hit_tokens": counters.recomputed_hits,
    }


def _adapters(world: Simulation) -> Values:
    """A hit is an admitted request whose adapter had its place in the arena already."""
    counters, residency, runner = world.loop.scheduler.counters, world.loop.residency, world.runner
    asked = world.recorder.n_with_adapter
    return {
        "requests": asked,
        "placements": runner.n_placements,
        "hit_rate": 1 - runner.n_placements / asked if asked else 0.0,
        "loads": {str(tier): n for tier, n in residency.loads.items()},
        "evictions": {str(reason): n for reason, n in residency.evictions.items()},
        "loaded_bytes": world.disk.n_bytes,
        "placement_seconds": runner.placement_s,
        "stall_seconds": counters.adapter_stall_s,
        "longest_wait": counters.longest_adapter_wait_s,
    }


def _preemptions(world: Simulation) -> Values:
    counters = world.loop.scheduler.counters
    return {
        "by_mode": {str(mode): n for mode, n in counters.preemptions.items()},
        "recomputed_tokens": counters.recomputed_tokens,
        "swap_bytes": dict(counters.swap_bytes),
    }


def _phases(world: Simulation) -> Values:
    """Utilisation of each kind of step and of the whole run; what was computed again is in HFU and not in MFU."""
    counters, profile, cost = world.loop.counters, world.runner.profile, world.runner.cost
    values: Values = {
        kind: _phase(n_steps, counters.step_seconds[kind], counters.work[kind], profile)
        for kind, n_steps in counters.steps.items()
        if n_steps and kind in counters.work
    }
    work = sum(counters.work.values(), StepWork())
    again = StepWork(flops=2 * cost.layer_params * world.loop.scheduler.counters.recomputed_tokens)
    seconds = max(world.clock.now, 1e-9)
    values["all"] = _phase(counters.steps.total(), seconds, work - again, profile) | {
        "busy_seconds": sum(counters.step_seconds.values()),
        "hfu": mfu(work, seconds, profile),
        "lora_share_of_reads": work.lora_bytes / work.read_bytes if work.read_bytes else 0.0,
    }
    values["ridge"] = ridge(profile)
    return values


def _phase(n_steps: int, seconds: float, work: StepWork, profile: DeviceProfile) -> Values:
    seconds = max(seconds, 1e-9)
    return {
        "steps": n_steps,
        "seconds": seconds,
        "flops_per_s": work.flops / seconds,
        "read_bytes_per_s": work.read_bytes / seconds,
        "mfu": mfu(work, seconds, profile),
        "mbu": mbu(work, seconds, profile),
        "intensity": intensity(work) if work.read_bytes else 0.0,
    }


def _tenant(record: TenantRecord, seconds: float) -> Values:
    return {
        "tenant": record.tenant,
        "weight": record.weight,
        "requests": _requests([record], 0) | {"met": record.met, "missed": record.missed},
        "latency": _latency([record]),
        "goodput": _goodput([record], seconds),
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "service": _service(record),
    }
