"""Three ways out of too little memory, each with a value that would fit: the pool, what stands beside it, more memory.

Plain arithmetic over what the memory table says; knows neither the table nor how it came about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lorikeet_engine.config import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """An engine that cannot start with what it may take.

    Attributes:
        room_bytes: what all but the KV pool leaves; negative where that alone is too much.
        wanted_bytes: of the KV pool as it was asked for; `least_bytes` is one that holds one longest request.
        others: settings of other pools, with their bytes, that could be lowered instead.
        more: how this device gets more memory.
    """

    room_bytes: int
    wanted_bytes: int
    least_bytes: int
    block_bytes: int
    block_size: int
    others: Mapping[str, int]
    more: str

    @property
    def missing_bytes(self) -> int:
        """For a pool as it was asked for, or for one request where less was asked for."""
        return max(self.wanted_bytes, self.least_bytes) - self.room_bytes

    def ways_out(self) -> str:
        if self.missing_bytes > 0:
            ways = [self._smaller_pool(), self._less_beside_it(), f"{self.more}: {self._missing()}"]
        else:
            ways = [
                self._smaller_pool(),
                self._shorter(self.wanted_bytes),
                "set kv_cache_bytes to 0: the engine chooses",
            ]
        return "\n".join(["three ways out:", *(f"  {i}. {way}" for i, way in enumerate(ways, 1))])

    def _smaller_pool(self) -> str:
        if self.room_bytes < self.least_bytes:
            return self._shorter(self.room_bytes)
        most = self.room_bytes // self.block_bytes * self.block_bytes
        return f"set kv_cache_bytes to {self.least_bytes} (one longest request) up to {most} (all that is left)"

    def _shorter(self, pool_bytes: int) -> str:
        """Requests that such a pool holds, beside its reserved block."""
        n_blocks = pool_bytes // self.block_bytes
        n_tokens = (n_blocks - 1) * self.block_size
        if n_tokens < 1:
            return "no shorter max_model_len would do: nothing is left for the KV pool"
        return f"set max_model_len to {n_tokens} and kv_cache_bytes to {n_blocks * self.block_bytes}"

    def _less_beside_it(self) -> str:
        missing = self.missing_bytes
        for name, n_bytes in sorted(self.others.items(), key=lambda other: -other[1]):
            if n_bytes - missing >= MIB:
                return f"set {name} to {(n_bytes - missing) // MIB * MIB}"
        return f"lower {', '.join(self.others)}, max_num_batched_tokens or max_num_seqs; no single pool is enough"

    def _missing(self) -> str:
        return f"{self.missing_bytes / MIB:.1f} MiB are missing"


def ran_out(table: str, *, kv_bytes: int, block_bytes: int, gpu_share: float | None) -> str:
    """What to say when memory that the table counts on was not there; `gpu_share`: of a GPU, None on a CPU."""
    smaller = kv_bytes // 2 // block_bytes * block_bytes
    ways = [
        "free memory of this machine" if gpu_share is None else f"set gpu_memory_utilization to {gpu_share * 0.9:.2f}",
        f"set kv_cache_bytes to {smaller}",
        "lower adapter_pool_bytes" if gpu_share is None else "end what else holds the GPU",
    ]
    lines = ["out of memory: something else has taken what this table counts on", table, "three ways out:"]
    return "\n".join([*lines, *(f"  {i}. {way}" for i, way in enumerate(ways, 1))])
