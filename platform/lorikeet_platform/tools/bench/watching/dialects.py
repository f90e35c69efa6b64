"""What the metrics of each make of server mean here. What does not mean the same is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lorikeet_engine.experiments.record import Reading
from lorikeet_platform.tools.bench.watching.exposition import Samples

KV_POOL = "kv"
QUEUE, PREFILL = "lorikeet_engine_queue_seconds", "lorikeet_engine_prefill_seconds"
UPTIME = "lorikeet_engine_uptime_seconds"
BY_KIND = {
    "steps": "lorikeet_engine_steps_total",
    "step_seconds": "lorikeet_engine_step_seconds_total",
    "flops": "lorikeet_estimated_flops_total",
    "read_bytes": "lorikeet_estimated_read_bytes_total",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One make of server: the metric by which it is known, all that are read, and what they add up to.

    `taken_at` is the metric that says when its figures were taken, in seconds; empty = when they are asked for.
    """

    make: str
    mark: str
    names: tuple[str, ...]
    read: Callable[[Samples, float], Reading]
    taken_at: str = ""


def dialect_of(samples: Samples) -> Dialect | None:
    return next((dialect for dialect in DIALECTS if dialect.mark in samples), None)


def _lorikeet(samples: Samples, at_s: float) -> Reading:
    pool = samples.by_name.get("lorikeet_pool_bytes", ())
    states = {has.get("state", ""): value for has, value in pool if has.get("pool") == KV_POOL}
    capacity = sum(states.values()) or 1.0
    peak = samples.total("lorikeet_kv_peak_bytes")
    kinds = {field: samples.by_label(name, "kind") for field, name in BY_KIND.items()}
    used = states.get("used", 0.0) / capacity
    return Reading(
        at_s=at_s,
        running=int(samples.total("lorikeet_engine_running_requests")),
        waiting=int(samples.total("lorikeet_engine_waiting_requests")),
        kv_used=used,
        kv_reserved=states.get("reserved", 0.0) / capacity,
        kv_cached=states.get("cached", 0.0) / capacity,
        kv_peak=max(used, peak / capacity),
        prompt_tokens=int(samples.total("lorikeet_engine_prompt_tokens_total")),
        output_tokens=int(samples.total("lorikeet_engine_generated_tokens_total")),
        preemptions=int(samples.total("lorikeet_preemptions_total")),
        steps={kind: int(n) for kind, n in kinds["steps"].items()},
        step_seconds=kinds["step_seconds"],
        flops=kinds["flops"],
        read_bytes=kinds["read_bytes"],
        first_tokens=int(samples.total(f"{PREFILL}_count")),
        queue_seconds=samples.total(f"{QUEUE}_sum"),
        prefill_seconds=samples.total(f"{PREFILL}_sum"),
    )


def _vllm(samples: Samples, at_s: float) -> Reading:
    # Each engine of a data-parallel server tells the share of its own pool, and all pools are alike.
    used = next((samples.average(name) for name in VLLM_KV if name in samples), None)
    return Reading(
        at_s=at_s,
        running=int(samples.total("vllm:num_requests_running")),
        waiting=int(samples.total("vllm:num_requests_waiting")),
        kv_used=used,
        kv_reserved=None,
        kv_cached=None,
        kv_peak=used,
        prompt_tokens=int(samples.total("vllm:prompt_tokens_total")),
        output_tokens=int(samples.total("vllm:generation_tokens_total")),
        preemptions=int(samples.total("vllm:num_preemptions_total")),
        steps={},
        step_seconds={},
        flops={},
        read_bytes={},
    )


def _llama(samples: Samples, at_s: float) -> Reading:
    used = samples.total("llamacpp:kv_cache_usage_ratio") if "llamacpp:kv_cache_usage_ratio" in samples else None
    return Reading(
        at_s=at_s,
        running=int(samples.total("llamacpp:requests_processing")),
        waiting=int(samples.total("llamacpp:requests_deferred")),
        kv_used=used,
        kv_reserved=None,
        kv_cached=None,
        kv_peak=used,
        prompt_tokens=int(samples.total("llamacpp:prompt_tokens_total")),
        output_tokens=int(samples.total("llamacpp:tokens_predicted_total")),
        preemptions=None,
        steps={},
        step_seconds={},
        flops={},
        read_bytes={},
    )


VLLM_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # its name now, and before
DIALECTS = (
    Dialect(
        "lorikeet",
        "lorikeet_engine_generated_tokens_total",
        (
            *BY_KIND.values(),
            "lorikeet_engine_generated_tokens_total",
            "lorikeet_engine_prompt_tokens_total",
            "lorikeet_engine_running_requests",
            "lorikeet_engine_waiting_requests",
            "lorikeet_pool_bytes",
            "lorikeet_kv_peak_bytes",
            "lorikeet_preemptions_total",
            UPTIME,
            f"{QUEUE}_sum",
            f"{PREFILL}_sum",
            f"{PREFILL}_count",
        ),
        _lorikeet,
        UPTIME,
    ),
    Dialect(
        "vllm",
        "vllm:generation_tokens_total",
        (
            *VLLM_KV,
            "vllm:generation_tokens_total",
            "vllm:prompt_tokens_total",
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:num_preemptions_total",
        ),
        _vllm,
    ),
    Dialect(
        "llama.cpp",
        "llamacpp:tokens_predicted_total",
        (
            "llamacpp:tokens_predicted_total",
            "llamacpp:prompt_tokens_total",
            "llamacpp:requests_processing",
            "llamacpp:requests_deferred",
            "llamacpp:kv_cache_usage_ratio",
        ),
        _llama,
    ),
)
WANTED = frozenset(name for dialect in DIALECTS for name in dialect.names)
