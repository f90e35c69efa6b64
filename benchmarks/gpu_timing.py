"""Timing on a GPU: calls recorded in a CUDA graph and replayed, inputs rotated past the cache, medians.

Where there is no GPU every call runs once and the time is that of the interpreter: it shows that a benchmark runs, and
nothing else (`IS_GPU` false).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from figures import Figure

from lorikeet_engine.cost import DeviceProfile
from lorikeet_engine.ops.triton.tuning import timing
from lorikeet_engine.ops.triton.tuning.timing import REPLAYS, Call
from lorikeet_engine.simulation.shipped import load_device

IS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if IS_GPU else "cpu"
CACHE_ROUNDS = 3  # inputs are this many times as large as the last cache
MAX_COPIES = 64
COPY_BYTES = 1 << 30
BROKE = " ran to its end"
GEMM_SIDE = 8192


def n_copies(n_bytes: int) -> int:
    """How many sets of inputs of `n_bytes` a benchmark takes in turn, so that none is in the cache when it comes."""
    if not IS_GPU:
        return 1
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return max(1, min(MAX_COPIES, -(-CACHE_ROUNDS * cache // max(1, n_bytes))))


def seconds_of(calls: Sequence[Call], *, quick: bool = False) -> float:
    """Median seconds of one of the calls; together they are one recording."""
    return timing.seconds_of(calls, replays=REPLAYS // 3 if quick else REPLAYS)


def copy_rate(*, quick: bool = False) -> float:
    """Bytes a second that a copy reads and writes, together."""
    n_bytes = COPY_BYTES if IS_GPU else 1 << 16
    source = torch.ones(n_bytes, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * n_bytes / seconds_of([lambda: target.copy_(source)], quick=quick)


def gemm_rate(*, quick: bool = False) -> float:
    """FLOPs a second of a large product in bfloat16."""
    side = GEMM_SIDE if IS_GPU else 64
    a, b = (torch.randn(side, side, device=DEVICE).bfloat16() for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3 / seconds_of([lambda: torch.mm(a, b, out=out)], quick=quick)


def wall_seconds(call: Call, *, rounds: int) -> list[float]:
    """Seconds of each of some calls, until the device has done what they asked for."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        if IS_GPU:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return times


def guarded(name: str, figures: Iterator[Figure]) -> Iterator[Figure]:
    """The figures as far as they come; what breaks on a GPU is told and takes no other part with it."""
    try:
        yield from figures
    except Exception:
        if not IS_GPU:
            raise
        print(f"{name} broke:\n{traceback.format_exc()}", flush=True)  # noqa: T201
        yield Figure(f"{name}{BROKE}", 0, "", "1", False)


@dataclass(frozen=True)
class Rates:
    """What this device was measured to do: bytes and FLOPs a second."""

    copy: float
    gemm: float

    def profile(self) -> DeviceProfile:
        """A device that always reaches both and needs no time besides: floors are computed with it."""
        return replace(
            load_device("h200"),
            peak_bandwidth=self.copy,
            peak_flops=self.gemm,
            mfu_prefill=1.0,
            mbu=1.0,
            step_overhead_s=0.0,
        )


def measured_rates(*, quick: bool) -> Rates:
    return Rates(copy_rate(quick=quick), gemm_rate(quick=quick))
