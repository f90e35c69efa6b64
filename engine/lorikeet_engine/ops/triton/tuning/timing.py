"""How long calls take on a GPU: recorded in a CUDA graph and replayed, the median.

Where Triton interprets, calls run once and the time means nothing, so that what times can be tested without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

WARM_UPS, REPLAYS = 3, 21

Call = Callable[[], object]


def seconds_of(calls: Sequence[Call], *, replays: int = REPLAYS) -> float:
    """Median seconds of one of the calls; together they are one recording, each with inputs of its own."""
    if not torch.cuda.is_available():
        started = time.perf_counter()
        for call in calls:
            call()
        return (time.perf_counter() - started) / len(calls)
    graph = _recorded(calls)
    times = [_replay_seconds(graph) for _ in range(WARM_UPS + replays)]
    return median(times[WARM_UPS:]) / len(calls)


def _replay_seconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = _event(), _event()
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _recorded(calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
    """The first round, on a stream of its own, compiles what is not compiled yet."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph
