"""The engine's two machines, its memory, and its adapters."""

from __future__ import annotations

from typing import Final

from lorikeet_platform.tools.monitoring.panels import Board, Panel, Query, quantile, quantiles, rate


def _utilisation(work: str, peak: str) -> str:
    """Of one peak that all engines of a kind share, while steps ran."""
    return f"{rate(work, 'kind')} / {rate('lorikeet_engine_step_seconds_total', 'kind')} / scalar(max({peak}))"


ENGINE: Final = Board(
    uid="lorikeet-engine",
    title="Lorikeet / Engine",
    text="Which phase, which wall, which knob? Prefill and decode are two machines and are shown apart.",
    rows=[
        [
            Panel(
                title="Time to first token by its parts, p90",
                text="Queue: more seats or replicas. Adapter: a larger arena. Prefill: the token budget.",
                queries=[
                    Query(quantile(0.9, "lorikeet_engine_queue_seconds"), "queue"),
                    Query(quantile(0.9, "lorikeet_engine_adapter_wait_seconds"), "adapter"),
                    Query(quantile(0.9, "lorikeet_engine_prefill_seconds"), "prefill"),
                    Query(quantile(0.9, "lorikeet_engine_ttft_seconds"), "all together"),
                ],
                unit="s",
            ),
            Panel(
                title="Between tokens",
                text="Prompts that are computed beside answers show as a p99 far above the median.",
                queries=quantiles("lorikeet_engine_itl_seconds"),
                unit="s",
            ),
            Panel(
                title="Steps by kind, p50",
                text="How long one step takes.",
                queries=[
                    Query(quantile(0.5, "lorikeet_engine_step_duration_seconds", "kind"), "{{kind}}"),
                ],
                unit="s",
            ),
        ],
        [
            Panel(
                title="Compute in use (MFU)",
                text="FLOP/s over the device's dense peak, while steps of that kind ran.",
                queries=[
                    Query(_utilisation("lorikeet_estimated_flops_total", "lorikeet_device_peak_flops"), "{{kind}}")
                ],
                unit="percentunit",
            ),
            Panel(
                title="Bandwidth in use (MBU)",
                text="Bytes read a second over the device's peak, while steps of that kind ran.",
                queries=[
                    Query(
                        _utilisation("lorikeet_estimated_read_bytes_total", "lorikeet_device_peak_bandwidth_bytes"),
                        "{{kind}}",
                    )
                ],
                unit="percentunit",
            ),
            Panel(
                title="Time by kind of step",
                text="What the engine does with its seconds; the rest to 1 it waits.",
                queries=[Query(rate("lorikeet_engine_step_seconds_total", "kind"), "{{kind}}")],
                unit="percentunit",
                stacked=True,
            ),
        ],
        [
            Panel(
                title="KV pool",
                text="The states add up to the pool. Used and reserved near the top: preemptions come next.",
                queries=[Query('sum by (state) (lorikeet_pool_bytes{pool="kv"})', "{{state}}")],
                unit="bytes",
                stacked=True,
            ),
            Panel(
                title="Batch and queue",
                text="Seats below their maximum: preemptions have taken some away.",
                queries=[
                    Query("sum(lorikeet_engine_running_requests)", "running"),
                    Query("sum(lorikeet_engine_waiting_requests)", "waiting"),
                    Query("sum(lorikeet_engine_swapped_requests)", "swapped"),
                    Query("sum(lorikeet_engine_seats)", "seats"),
                ],
            ),
            Panel(
                title="Preemptions and what they cost",
                text="Any for long means too many seats: about 60 % of the theoretical concurrency is right.",
                queries=[
                    Query(rate("lorikeet_preemptions_total", "mode"), "{{mode}}"),
                    Query(rate("lorikeet_recomputed_tokens_total"), "tokens computed again"),
                ],
                unit="ops",
            ),
        ],
        [
            Panel(
                title="Prefix cache",
                text="Prompt tokens that were found.",
                queries=[
                    Query(
                        f"{rate('lorikeet_prefix_hit_tokens_total')} / {rate('lorikeet_prefix_queried_tokens_total')}",
                        "hit rate",
                    )
                ],
                unit="percentunit",
            ),
            Panel(
                title="Why prompts missed",
                text="`evicted`: the pool is small. Mostly `cold` with prompts alike: something dynamic stands first.",
                queries=[Query(rate("lorikeet_prefix_misses_total", "reason"), "{{reason}}")],
                unit="ops",
                stacked=True,
            ),
            Panel(
                title="Not taken",
                text="Refused by reason, and dropped at the deadline.",
                queries=[
                    Query(rate("lorikeet_refusals_total", "reason"), "{{reason}}"),
                    Query(rate("lorikeet_expired_requests_total"), "expired"),
                ],
                unit="reqps",
                stacked=True,
            ),
        ],
    ],
)

ADAPTERS: Final = Board(
    uid="lorikeet-adapters",
    title="Lorikeet / Adapters",
    text="What serving many adapters costs, and which ones.",
    rows=[
        [
            Panel(
                title="Arena",
                text="Used and cached adapters; nothing free and loads rising: they push each other out.",
                queries=[Query('sum by (state) (lorikeet_pool_bytes{pool="adapters"})', "{{state}}")],
                unit="bytes",
                stacked=True,
            ),
            Panel(
                title="Loads and evictions",
                text="Loads from disk take ten times as long as from host memory.",
                queries=[
                    Query(rate("lorikeet_adapter_loads_total", "tier"), "loaded from {{tier}}"),
                    Query(rate("lorikeet_adapter_evictions_total", "reason"), "evicted: {{reason}}"),
                ],
                unit="ops",
            ),
            Panel(
                title="Waiting for nothing but an adapter",
                text="Request-seconds a second. Above 0 for long: a larger arena, or fewer adapters at once.",
                queries=[Query(rate("lorikeet_adapter_stall_seconds_total"), "stalled")],
            ),
        ],
        [
            Panel(
                title="LoRA's part of the bytes read",
                text="One large rank is paid by everybody in its step.",
                queries=[
                    Query(
                        f"{rate('lorikeet_estimated_lora_read_bytes_total')}"
                        f" / {rate('lorikeet_estimated_read_bytes_total')}",
                        "LoRA",
                    )
                ],
                unit="percentunit",
            ),
            Panel(
                title="Adapters by residency",
                text="Where the known ones are.",
                queries=[Query("sum by (state) (lorikeet_adapters)", "{{state}}")],
                stacked=True,
            ),
            Panel(
                title="Waiting for an adapter, p99",
                text="Of single requests.",
                queries=[Query(quantile(0.99, "lorikeet_engine_adapter_wait_seconds"), "p99")],
                unit="s",
            ),
        ],
    ],
)
