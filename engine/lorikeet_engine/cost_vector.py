"""What one request, one tenant or a whole engine has cost: one vector, summed in one way."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True, kw_only=True)
class CostVector:
    """Estimated work and memory-time, by who caused it. What is shared is divided, so that requests add up to totals.

    Attributes:
        prefill_flops, decode_flops: with what adapters take; computing again after a preemption included.
        prefill_read_bytes, decode_read_bytes: memory read; the rows of a step share the weights and their adapter.
        write_bytes: keys and values written.
        kv_byte_seconds: KV memory held or promised, times how long; a shared block counts in equal parts.
        adapter_byte_seconds: the arena's part of the request's adapter, shared with the others that run on it.
        load_bytes: copied into the arena so that it could begin.
        wasted_flops: the part of the FLOPs that computed again what a preemption had dropped.
        swap_bytes: copied to and from host memory.
    """

    prefill_flops: float = 0.0
    decode_flops: float = 0.0
    prefill_read_bytes: float = 0.0
    decode_read_bytes: float = 0.0
    write_bytes: float = 0.0
    kv_byte_seconds: float = 0.0
    adapter_byte_seconds: float = 0.0
    load_bytes: float = 0.0
    wasted_flops: float = 0.0
    swap_bytes: float = 0.0

    def add(self, other: CostVector) -> None:
        for name in COSTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COSTS = tuple(field.name for field in fields(CostVector))
