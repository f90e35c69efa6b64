"""What single adapters do to the engine: what they compute, move and keep waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lorikeet_engine.cost import lora_row_flops
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.observing.busiest import Split
from lorikeet_engine.scheduling.plan import PlanRow


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
    """Counts by adapter. `n_bytes_of` says how large one is, `itemsize` what one of its numbers takes."""

    def __init__(
        self, adapters: Split[AdapterKey, UseCell], *, n_bytes_of: Callable[[AdapterKey], int], itemsize: int
    ) -> None:
        self.adapters = adapters
        self._n_bytes_of = n_bytes_of
        self._itemsize = itemsize

    def computed(self, rows: Sequence[PlanRow]) -> None:
        """A step with these rows: each adapter in it was read once, and every token went through its row's."""
        tokens: dict[AdapterKey, int] = {}
        for row in rows:
            key = row.adapter
            if key is not None:
                tokens[key] = tokens.get(key, 0) + len(row.token_ids)
        for key, n in tokens.items():
            cell, n_bytes = self.adapters.of(key), self._n_bytes_of(key)
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
