"""A whole engine loop around a runner, for benchmarks: requests in, answers written out as a server would.

The server's message packing is not on every GPU machine; JSON stands in for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import torch

from lorikeet_engine.cost import ModelCost
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.scheduling.events import TokenOutput
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import Scheduler
from lorikeet_engine.simulation.shipped import load_device

ENOUGH_BYTES = 1 << 30


class NoLoads:
    """No adapter is ever asked for."""

    def start(self, key: AdapterKey) -> None:
        raise ValueError(f"{key} was not expected")

    def poll(self) -> Sequence[object]:
        return ()


def loop_seconds(
    runner: ModelRunner, spec: ModelSpec, *, n_requests: int, n_prompt: int, n_tokens: int, overlaps: bool
) -> float:
    """Seconds of one iteration in which all requests decode."""
    itemsize, budget = runner.dtype.itemsize, runner.budget
    kv = KvManager(
        n_blocks=budget.n_blocks,
        block_size=budget.block_size,
        block_bytes=budget.block_bytes,
        n_host_slots=0,
        enable_prefix_caching=False,
    )
    residency = AdapterResidency(n_grains=runner.arena.n_grains, grain_bytes=32, host_bytes=ENOUGH_BYTES, max_loading=1)
    limits = SchedulerLimits(
        max_model_len=budget.max_model_len,
        max_num_seqs=n_requests,
        max_num_batched_tokens=n_requests + n_prompt * 4,
        max_adapters_per_step=1,
        max_queued_requests=n_requests,
        eos_token_ids=frozenset(),
        vocab=spec.vocab,
    )
    cost = ModelCost.of(spec, itemsize=itemsize)
    scheduler = Scheduler(limits, kv, residency, cost=cost, profile=load_device("h200"), itemsize=itemsize)
    loop = EngineLoop(
        scheduler=scheduler,
        kv=kv,
        residency=residency,
        loader=NoLoads(),  # type: ignore[arg-type]
        runner=runner,
        cost=cost,
        launcher=runner if overlaps else None,
    )
    for index in range(n_requests):
        prompt = tuple((index + place) % 100 for place in range(n_prompt))
        request = Request(
            request_id=f"r{index}",
            tenant="bench",
            prompt=prompt,
            max_tokens=n_tokens,
            sampling=SamplingParams(),
            adapter=None,
        )
        loop.submit([request], time.monotonic())
    return _iterate(loop, n_requests)


def _iterate(loop: EngineLoop, n_requests: int) -> float:
    """Step to the end; only iterations that gave every request a token count."""
    seconds, n_full = 0.0, 0
    while loop.has_work:
        started = time.perf_counter()
        events = loop.step(time.monotonic())
        for event in events:
            json.dumps({"request": event.request_id, "token": getattr(event, "token", None)}).encode()
        if sum(isinstance(event, TokenOutput) for event in events) == n_requests:
            seconds += time.perf_counter() - started
            n_full += 1
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if not n_full:
        raise ValueError("no iteration decoded all requests")
    return seconds / n_full
