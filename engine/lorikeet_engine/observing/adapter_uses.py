"""What single adapters do to the engine: what they compute, move and keep waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lorikeet_engine.cost import lora_row_flops
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.observing.busiest import Split
from lorikeet_engine.scheduling.batching.batch import AdapterRows


@dataclass(slots=True)
class UseCell:
    """The counts of `stats.AdapterUse`."""

    tokens: int = 0
    loads: int = 0
    evictions: int = 0
    stall_s: float = 0.0
    read_bytes: float = 0.0
    row_flops: float = 0.0

    def merge(self, other: UseCell) -> None:
        self.tokens += other.tokens
        self.loads += other.loads
        self.evictions += other.evictions
        self.stall_s += other.stall_s
        self.read_bytes += other.read_bytes
        self.row_flops += other.row_flops


class AdapterUses:
    """Counts by adapter; `itemsize` is what one number of it takes."""

    def __init__(self, adapters: Split[AdapterKey, UseCell], *, itemsize: int) -> None:
        self.adapters = adapters
        self._itemsize = itemsize

    def computed(self, step: Mapping[AdapterKey, AdapterRows]) -> None:
        """A step of these: each adapter was read once, and all its tokens went through it.

        As large as they were planned: with its last request an adapter may be gone when the step is over.
        """
        for key, (n_bytes, n_decode, n_prefill) in step.items():
            cell, n = self.adapters.of(key), n_decode + n_prefill
            cell.tokens += n
            cell.read_bytes += n_bytes
            cell.row_flops += n * lora_row_flops(n_bytes, itemsize=self._itemsize)

    def placed(self, keys: Sequence[AdapterKey]) -> None:
        for key in keys:
            self.adapters.of(key).loads += 1

    def evicted(self, keys: Sequence[AdapterKey]) -> None:
        for key in keys:
            self.adapters.of(key).evictions += 1

    def stalled(self, waits: Sequence[tuple[AdapterKey, float]]) -> None:
        for key, seconds in waits:
            self.adapters.of(key).stall_s += seconds
