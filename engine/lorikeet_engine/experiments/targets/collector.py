"""Turns what a world tells while it runs into the record of one point."""

from __future__ import annotations

import math
from typing import cast

from lorikeet_engine.experiments.record import Outcome, PointRecord, Reading, RequestRecord
from lorikeet_engine.experiments.scenarios.setup import Setup
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.simulation.report.recorder import OpenRequest
from lorikeet_engine.simulation.report.samples import BINS_PER_E, Gaps
from lorikeet_engine.simulation.world import World

READ_EVERY_S = 0.1
MAX_READINGS = 1000


class Collector:
    """Reads the engine's counters now and then and keeps every request that ended, from the moment it is made."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._requests: list[RequestRecord] = []
        self._readings: list[Reading] = []
        self._every_s = READ_EVERY_S
        self._read()
        world.watch = self._watch
        world.recorder.ended = self._ended

    def point(self, setup: Setup) -> PointRecord:
        """What came of it, when the world has ended."""
        self._read()
        world = self._world
        gaps = Gaps().merge(record.gaps for record in world.recorder.tenants.values())
        return PointRecord(
            setup=setup.values(),
            seconds=world.clock.now,
            requests=sorted(self._requests, key=lambda request: request.sent_s),
            gaps=[(math.exp(bin_ / BINS_PER_E), n) for bin_, n in sorted(gaps.bins.items())],
            readings=self._readings,
            pool_tokens=world.loop.kv.n_usable * world.loop.kv.block_size,
        )

    def _watch(self, now: float) -> None:
        if now < self._readings[-1].at_s + self._every_s:
            return
        self._read()
        if len(self._readings) > MAX_READINGS:
            self._readings = self._readings[::2]
            self._every_s *= 2

    def _read(self) -> None:
        world, loop = self._world, self._world.loop
        kv, counters, scheduler = loop.kv.ledger, loop.counters, loop.scheduler
        self._readings.append(
            Reading(
                at_s=world.clock.now,
                running=scheduler.n_running,
                waiting=scheduler.n_waiting,
                kv_used=kv[MemoryState.USED] / kv.capacity,
                kv_reserved=kv[MemoryState.RESERVED] / kv.capacity,
                kv_cached=kv[MemoryState.CACHED] / kv.capacity,
                kv_peak=world.recorder.kv_peak,
                prompt_tokens=counters.prompt_tokens,
                output_tokens=counters.generated_tokens,
                preemptions=scheduler.counters.preemptions.total(),
                steps=dict(counters.steps),
                step_seconds=dict(counters.step_seconds),
                flops={kind: float(work.flops) for kind, work in counters.work.items()},
                read_bytes={kind: float(work.read_bytes) for kind, work in counters.work.items()},
            )
        )

    def _ended(self, request: OpenRequest, outcome: str, code: str) -> None:
        self._requests.append(
            RequestRecord(
                tenant=request.record.tenant,
                adapter=request.adapter,
                n_prompt=request.n_prompt,
                n_cached=request.n_cached,
                n_output=request.n_output,
                sent_s=request.arrived,
                queue_s=request.queue_s,
                first_s=request.first_at if request.n_output else None,
                last_s=request.last_at if request.n_output else None,
                outcome=cast(Outcome, outcome),
                code=code,
            )
        )
