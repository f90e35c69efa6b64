"""An engine's time: requests come, the loop steps, and the clock moves by what each step took.

Nothing here decides anything about requests; that is the same loop, scheduler and memory that serve real ones. What
steps are computed on is a device that is arithmetic, or a real one whose steps are timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from lorikeet_engine.errors import EngineError
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.events import Admitted, RequestFailure, TokenOutput
from lorikeet_engine.simulation.effort import Effort
from lorikeet_engine.simulation.report.recorder import Recorder, Sample
from lorikeet_engine.simulation.virtual_disk import VirtualClock
from lorikeet_engine.simulation.workload.arrival import Arrival, Traffic

IDLE_TICK_S = 0.01  # between two looks at requests that wait for nothing the world knows of
PATIENCE_S = 600.0  # without a step, while requests wait
RETRY_S = 1.0  # when a client comes back that was refused without being told when


class SimulationStuck(RuntimeError):
    """Requests wait, nothing runs, and time alone changes nothing."""


class Device(Protocol):
    """What steps are computed on, and how long that takes."""

    def begin(self) -> None:
        """The loop is about to step."""

    def spent(self) -> float:
        """Seconds since then for what was computed; 0 where nothing was."""


class Disk(Protocol):
    """Where adapters are loaded from."""

    def next_at(self) -> float | None:
        """When the next load ends, as far as that is known."""


@dataclass(slots=True, kw_only=True)
class World:
    """One engine and everything around it.

    Attributes:
        host_overhead_s: the host's own time after each step.
        ends_at: how many tokens the answer of a request takes, where it ends before its `max_tokens`.
        watch: told the time after every step.
        effort: what all of this may cost; None = whatever it does.
        n_steps: steps that took time.
    """

    loop: EngineLoop
    runner: Device
    disk: Disk
    clock: VirtualClock
    traffic: Traffic
    recorder: Recorder
    host_overhead_s: float = 0.0
    ends_at: dict[str, int] = field(default_factory=dict)
    watch: Callable[[float], None] | None = None
    effort: Effort | None = None
    n_steps: int = 0
    _hang_ups: list[tuple[float, str]] = field(default_factory=list)
    _idle_s: float = 0.0

    def run(self, until: float = float("inf")) -> None:
        """Let time pass until then, or until nothing is left to come and everything has ended.

        Raises:
            SimulationStuck: waiting requests were not started for `PATIENCE_S` seconds though nothing ran.
            TooMuchWork: it cost more than `effort` allows.
        """
        while self.clock.now < until and self._advance(until):
            pass

    @property
    def has_waiting(self) -> bool:
        return self.loop.scheduler.n_waiting > 0

    def _advance(self, until: float) -> bool:
        """One step, or one pause; false when there is nothing to wait for."""
        if self.effort:
            self.effort.turn(self.loop.scheduler.n_running)
        self._let_in(self.clock.now)
        self._hang_up(self.clock.now)
        self.runner.begin()
        events = self.loop.step(self.clock.now)
        busy_s = self.runner.spent()
        if busy_s > 0.0:
            self.clock.now += busy_s + self.host_overhead_s
            self.n_steps += 1
            self._idle_s = 0.0
        for event in events:
            self._tell(event)
        if self.recorder.is_due(self.clock.now):
            self._sample()
        self._watch_peak()
        if self.watch:
            self.watch(self.clock.now)
        return bool(events) or busy_s > 0.0 or self._wait(until)

    def _let_in(self, now: float) -> None:
        if (at := self.traffic.next_at()) is None or at > now:
            return
        for arrival in self.traffic.take(now):
            if self.effort:
                self.effort.request(len(arrival.request.prompt))
            self.recorder.arrived(arrival)
            self._submit(arrival, now)

    def _submit(self, arrival: Arrival, now: float) -> None:
        request = arrival.request
        request_id = request.request_id
        if arrival.n_output < request.max_tokens:
            self.ends_at[request_id] = arrival.n_output
        try:
            self.loop.submit([request], now)
        except EngineError as refusal:
            self.recorder.refused(request_id, refusal.reason or refusal.code)
            self._forget(request_id, now + (refusal.retry_after_s or RETRY_S))
            return
        self.recorder.queued(request_id, request.predicted_ttft_s)
        if arrival.abort_after_s:
            heappush(self._hang_ups, (arrival.at + arrival.abort_after_s, request_id))

    def _hang_up(self, now: float) -> None:
        while self._hang_ups and self._hang_ups[0][0] <= now:
            _, request_id = heappop(self._hang_ups)
            if request_id in self.recorder.open:
                self.loop.abort(request_id)
                self.recorder.aborted(request_id)
                self._forget(request_id, now)

    def _tell(self, event: TokenOutput | RequestFailure | Admitted) -> None:
        now = self.clock.now
        if isinstance(event, TokenOutput):
            is_last = event.finish_reason is not None
            self.recorder.token(event.request_id, now, is_last=is_last)
            if is_last:
                self._forget(event.request_id, now)
        elif isinstance(event, Admitted):
            self.recorder.admitted(event.request_id, event.cached_tokens, event.queue_s)
        else:
            self.recorder.failed(event.request_id, event.error.code)
            self._forget(event.request_id, now)

    def _forget(self, request_id: str, now: float) -> None:
        self.ends_at.pop(request_id, None)
        self.traffic.on_ended(request_id, now)

    def _wait(self, until: float) -> bool:
        """Move to the next thing that happens by itself."""
        times = [self.traffic.next_at(), self.disk.next_at()]
        if self._hang_ups:
            times.append(self._hang_ups[0][0])
        coming = [at for at in times if at is not None]
        now = self.clock.now
        if self.has_waiting or self.loop.scheduler.n_running:
            coming.append(now + IDLE_TICK_S)
            self._idle_s += IDLE_TICK_S
            if self._idle_s > PATIENCE_S:
                raise SimulationStuck(f"{self.loop.scheduler.n_waiting} requests wait and nothing runs at {now:.1f} s")
        if not coming:
            return False
        self.clock.now = min(max(min(coming), now), until)
        return True

    def _watch_peak(self) -> None:
        ledger = self.loop.kv.ledger
        self.recorder.kv_peak = max(self.recorder.kv_peak, ledger[MemoryState.USED] / ledger.capacity)

    def _sample(self) -> None:
        kv, arena = self.loop.kv.ledger, self.loop.residency.ledger
        scheduler = self.loop.scheduler
        self.recorder.sample(
            Sample(
                at=self.clock.now,
                running=scheduler.n_running,
                waiting=scheduler.n_waiting,
                kv_used=kv[MemoryState.USED] / kv.capacity,
                kv_reserved=kv[MemoryState.RESERVED] / kv.capacity,
                kv_cached=kv[MemoryState.CACHED] / kv.capacity,
                arena_used=1.0 - arena[MemoryState.FREE] / arena.capacity if arena.capacity else 0.0,
                output_tokens=self.recorder.output_tokens,
            )
        )
