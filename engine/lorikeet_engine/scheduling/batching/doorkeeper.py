"""In which order the waiting are tried, and when nobody is.

Before the prompts that were begun go on, those may pass them that would be done earlier under a fair share.

The one that waited too long comes first, then those who were preempted, then new ones as fairness wants them. When
the first of these lack KV blocks nobody passes them; when it lacks its adapter, others may run, but adapters are made
to drain until there is room for it.
"""

from __future__ import annotations

from collections.abc import Callable

from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.scheduling.batching.adapter_gate import AdapterGate
from lorikeet_engine.scheduling.batching.batch import Batch
from lorikeet_engine.scheduling.batching.preemption import SeatControl
from lorikeet_engine.scheduling.batching.running_set import RunningSet
from lorikeet_engine.scheduling.batching.starter import Outcome, Starter
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.waiting.room import WaitingRoom

MAX_TRIES = 128  # requests that one step looks at before it runs with what it has


class Doorkeeper:
    """Holds the barrier, and nothing else of its own.

    Args:
        plan_first_chunk: puts the first tokens of a started request into the batch.
        patience_s: how long a begun prompt may make way for others.
    """

    def __init__(
        self,
        *,
        kv: KvManager,
        room: WaitingRoom,
        running: RunningSet,
        adapters: AdapterGate,
        seats: SeatControl,
        starter: Starter,
        plan_first_chunk: Callable[[Request, Batch], None],
        patience_s: float,
    ) -> None:
        self._kv = kv
        self._room = room
        self._running = running
        self._adapters = adapters
        self._seats = seats
        self._starter = starter
        self._plan_first_chunk = plan_first_chunk
        self._patience_s = patience_s
        self._barrier: Request | None = None
        self._lacked_kv = False  # somebody who was to pass in this step

    def admit(self, batch: Batch, now: float) -> None:
        """Start requests while there are seats and budget; asked in every step, since a barrier may have gone away."""
        if not (self._room or self._barrier):
            return
        batch.is_saturated = True  # unless everybody could be tried
        parked = self._room.parked()
        if self._seats.is_shut and not self._seats.open_if(
            n_available=self._kv.n_available,
            n_needed=self._kv.blocks_for(len(parked[0].tokens) + 1) if parked else 0,
            n_running=len(self._running),
        ):
            return
        if not self._admit_barrier(batch, now):
            return
        for request in parked:
            if request.tried_step == batch.step_id:
                continue  # it is the barrier
            if not self._has_room(batch) or self._try(request, batch, now) is Outcome.NO_KV:
                return
        if not self._has_room(batch):
            return
        is_running = self._adapters.is_running
        is_idle = not (batch or self._running)  # then the hundredth may be the first that can run
        candidates = self._room.fair_order(lambda request: is_running(request.adapter), all_of_them=is_idle)
        outcomes = {Outcome.STARTED}
        for n_tried, request in enumerate(candidates, start=1):
            if request.tried_step == batch.step_id:
                continue
            outcomes.add(self._try(request, batch, now))
            if not self._has_room(batch) or (n_tried >= MAX_TRIES and batch):
                return
        batch.is_saturated = self._lacked_kv or Outcome.NO_KV in outcomes

    def let_pass(self, batch: Batch, now: float) -> None:
        """Start, before begun prompts go on, what would be done before all of them if everybody had a fair share.

        That is told by the virtual finish: a short prompt of a tenant that had little does not wait for the rest of a
        long one of a tenant that had more, and equal tenants with equal prompts take turns after whole prompts. What
        this step can finish is in the batch already and is not passed. A prompt that did not get on for as long as
        makes a barrier goes first from then on, and nobody passes it.
        """
        self._lacked_kv = False
        begun = [r for r in self._running if not r.decodes and r.planned_step != batch.step_id]
        for request in begun:
            request.goes_first |= now - request.progressed_s >= self._patience_s
        if not begun or any(request.goes_first for request in begun):
            return
        if not self._room or self._room.n_parked or self._seats.is_shut or self._room.barrier(now):
            return
        soonest = min(request.virtual_finish for request in begun)
        begun_for = {request.tenant for request in begun}
        for n_tried, request in enumerate(self._room.fair_order(lambda _: False, all_of_them=False), start=1):
            is_full = len(self._running) >= self._seats.seats or batch.budget < self._kv.block_size
            if is_full or request.account.service >= soonest or n_tried > MAX_TRIES:
                return
            if request.tenant not in begun_for and request.virtual_finish < soonest:
                self._lacked_kv |= self._try(request, batch, now) is Outcome.NO_KV

    def forget(self, request: Request) -> None:
        """It started or is over; if it was the barrier, what was kept for it is free at once."""
        if request is self._barrier:
            self._barrier = None
            self._adapters.clear_way()

    def _has_room(self, batch: Batch) -> bool:
        return batch.budget > 0 and len(self._running) < self._seats.seats

    def _admit_barrier(self, batch: Batch, now: float) -> bool:
        """Try the request that waited too long; false when everybody else has to stand back for it."""
        barrier = self._room.barrier(now)
        if barrier is not self._barrier:
            self._adapters.clear_way()
            self._barrier = barrier
        if barrier is None or not self._has_room(batch):
            return barrier is None
        outcome = self._try(barrier, batch, now)
        if outcome is Outcome.NO_ADAPTER and barrier.adapter:
            self._adapters.make_way(barrier.adapter, now)
        if outcome is Outcome.OWN_LIMIT:
            self.forget(barrier)
        return outcome is not Outcome.NO_KV

    def _try(self, request: Request, batch: Batch, now: float) -> Outcome:
        """Start one request if everything it needs is there, and note what was missing if not."""
        request.tried_step = batch.step_id
        outcome = self._starter.start(request, batch, now)
        if outcome is Outcome.STARTED:
            self.forget(request)
            self._plan_first_chunk(request, batch)
        elif outcome is Outcome.NO_BUDGET:
            batch.close()  # or shorter ones would pass it in every step
        elif outcome is not Outcome.DEFERRED:
            if outcome is not Outcome.NO_ADAPTER:
                self._starter.end_adapter_wait(request, now)
            if outcome is Outcome.OWN_LIMIT:
                self._room.note_own_limit(request)
            else:
                self._room.note_blocked(request, now, adapter=outcome is Outcome.NO_ADAPTER)
        return outcome
