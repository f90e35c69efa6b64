"""Iteration-level scheduling: which tokens of which requests the next step computes.

Decodes run in every step, oldest first; prompts are computed in block-aligned chunks with what is left of the token
budget; then, if nobody had to give way, requests are admitted: the one that waited too long, the preempted, and new
ones as fairness wants them. What is admitted has blocks for its whole prompt. Tokens count as computed, and blocks as
shareable, only when the step that computed them has been committed.

Nobody starves (engine-design 3.7): the oldest running request is never preempted, so every running one ends; each
step has a block's worth of tokens for prompts beside the decodes; and nothing is admitted that would delay the barrier.

Pure Python: no torch, no clock, no I/O. Time is an argument in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lorikeet_engine.cost import DeviceProfile, ModelCost, StepShape
from lorikeet_engine.errors import AdapterRetired, DeadlineExceeded, EngineError, EngineFailure
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.scheduling.batching.adapter_gate import AdapterGate
from lorikeet_engine.scheduling.batching.batch import AdapterRows, Batch
from lorikeet_engine.scheduling.batching.doorkeeper import Doorkeeper
from lorikeet_engine.scheduling.batching.preemption import SeatControl, VictimChoice
from lorikeet_engine.scheduling.batching.prompt_chunks import PromptChunks
from lorikeet_engine.scheduling.batching.running_set import RunningSet
from lorikeet_engine.scheduling.batching.starter import Starter
from lorikeet_engine.scheduling.costing import Costing
from lorikeet_engine.scheduling.counters import SchedulerCounters, TenantLoad
from lorikeet_engine.scheduling.events import Event, RequestFailure, TokenOutput
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.plan import BlockCopy, StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request, Stage
from lorikeet_engine.scheduling.waiting.admission import AdmissionGate
from lorikeet_engine.scheduling.waiting.caps import Cap
from lorikeet_engine.scheduling.waiting.fairness import FairQueue, Prices
from lorikeet_engine.scheduling.waiting.intake import bind_choices, check_together
from lorikeet_engine.scheduling.waiting.rates import Rates
from lorikeet_engine.scheduling.waiting.room import WaitingRoom
from lorikeet_engine.step_time import StepTimeModel

REFERENCE_BATCH = 16  # rows that share the weights, for the price of an adapter's bytes


class Scheduler:
    """Owns every request from `submit` to its end.

    Every way out (finish, abort, failure, expiry) goes through `_release`, which gives everything back exactly once.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        kv: KvManager,
        residency: AdapterResidency,
        *,
        cost: ModelCost,
        profile: DeviceProfile,
        itemsize: int = 2,
    ) -> None:
        self._limits = limits
        self._kv = kv
        self._residency = residency
        self._itemsize = itemsize
        self.counters = SchedulerCounters()
        self.last_shape = StepShape()
        self.timing = StepTimeModel(cost, profile)
        self._prices = Prices(adapter_per_byte=Prices().output * REFERENCE_BATCH / cost.weights_bytes)
        self._queue = FairQueue(
            quantum=limits.locality_quantum, idle_credit=limits.idle_credit, deadline_s=limits.ttft_deadline_s
        )
        self._room = WaitingRoom(self._queue, residency, barrier_after_s=limits.barrier_after_s, aging_s=limits.aging_s)
        self._running = RunningSet()
        self._rates = Rates(self.timing, budget=limits.max_num_batched_tokens)
        self._gate = AdmissionGate(
            limits, queue=self._queue, kv=kv, residency=residency, rates=self._rates, counters=self.counters
        )
        self.caps = self._gate.caps
        self._adapters = AdapterGate(
            residency, max_adapters=limits.max_adapters_per_step, tenant_arena_share=limits.tenant_arena_share
        )
        self.costing = Costing(cost, kv, residency, self.counters, itemsize=itemsize)
        starter = Starter(
            limits,
            kv=kv,
            adapters=self._adapters,
            room=self._room,
            running=self._running,
            prices=self._prices,
            caps=self.caps,
            counters=self.counters,
            costing=self.costing,
        )
        self._chunks = PromptChunks(limits, kv=kv, running=self._running, prices=self._prices)
        self._victims = VictimChoice(limits, kv=kv, cost=cost, profile=profile)
        self._seats = SeatControl(limits.max_num_seqs)
        self._door = Doorkeeper(
            kv=kv,
            room=self._room,
            running=self._running,
            adapters=self._adapters,
            seats=self._seats,
            starter=starter,
            plan_first_chunk=self._chunks.add,
            patience_s=limits.barrier_after_s,
        )
        self._planned = Batch(0, 0, 0.0)
        self._step_id = self._serial = 0
        self._n_available = kv.n_available

    @property
    def n_waiting(self) -> int:
        return len(self._room)

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_adapters(self) -> int:
        """How many adapters the running requests use."""
        return self._adapters.n_running

    @property
    def n_swapped(self) -> int:
        """How many of the waiting have their KV blocks in host memory."""
        return sum(request.stage is Stage.SWAPPED for request in self._room.parked())

    @property
    def seats(self) -> int:
        """How many requests may run at once now: `max_num_seqs`, or fewer after preemptions."""
        return self._seats.seats

    @property
    def max_seats(self) -> int:
        return self._limits.max_num_seqs

    @property
    def last_adapters(self) -> Mapping[AdapterKey, AdapterRows]:
        """The adapters of the step that was planned last."""
        return self._planned.adapters

    def tenants(self) -> list[TenantLoad]:
        return self._queue.loads()

    # -- coming and going ----------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request], now: float, caps: Sequence[Cap] = ()) -> None:
        """Queue the requests of one submit (more than one for n > 1, with one prompt), all of them or none.

        Raises:
            InvalidRequest, ContextLengthExceeded: see `intake.check_together`.
            AdapterRetired: the adapter is being unloaded.
            AdapterUnavailable: it could not be loaded a moment ago.
            Overloaded: a cap or the queue is full, or the first token would come too late; see `AdmissionGate`.
            ValueError: the requests are not choices of one prompt.
        """
        check_together(requests, self._limits, self._kv, known=(self._running.by_id, self._room))
        first = requests[0]
        if first.adapter and (refusal := self._residency.refusal(first.adapter, now)):
            raise refusal
        self._gate.check_caps(caps, now)
        account = self._queue.account(first.tenant, first.weight)
        self._gate.check_bounds(len(requests), first.n_prompt, account)
        bind_choices(requests, account, self._limits, self._kv)
        started = sum(request.n_left_to_compute for request in self._running if not request.decodes)
        self._gate.check_deadline(requests, account, now, started_tokens=started)
        # One of them may have to compute the prompt in place of the first.
        expires_s = now + self._limits.ttft_deadline_s - self._rates.prefill_s(first.n_expected)
        for request in requests:
            self._serial += 1
            request.serial, request.arrival_s, request.stage = self._serial, now, Stage.WAITING
            self._room.add(request, now, expires_s=expires_s)
        self.caps.enter(first.siblings, caps, len(requests))

    def abort(self, request_id: str) -> bool:
        """Drop a request wherever it is; false when it is gone already."""
        request = self._running.by_id.get(request_id) or self._room.get(request_id)
        if request is not None:
            self._release(request)
        return request is not None

    def fail_waiting_for(self, key: AdapterKey, error: EngineError) -> list[RequestFailure]:
        """End the requests that wait for an adapter which will not come."""
        waiting = self._room.waiting_for(key)
        for request in waiting:
            self._release(request)
        return [RequestFailure(request.request_id, error) for request in waiting]

    def retire(self, key: AdapterKey, *, force: bool = False) -> list[RequestFailure]:
        """Take an adapter out of service: what waits ends now, and with `force` what has begun, too.

        Without it, what has begun ends as it began, preempted or not. Cached prefixes of the adapter are forgotten at
        once, its memory when the last request on it has ended.
        """
        error = AdapterRetired("the adapter's version was taken out of service", param="model")
        ending = [request for request in self._room.waiting_for(key) if force or not request.siblings.has_begun]
        if force:
            ending += self._adapters.running_on(key)
        for request in ending:
            self._release(request)
        self._kv.purge(key)
        self._residency.retire(key)
        return [RequestFailure(request.request_id, error) for request in ending]

    def reap(self, now: float) -> list[RequestFailure]:
        """End the queued requests whose deadline cannot be met any more."""
        self._seats.tick(now)
        late = self._room.expired(now)
        for request in late:
            request.account.margin.observe(predicted_s=request.predicted_ttft_s, actual_s=self._limits.ttft_deadline_s)
            self._release(request)
        self.counters.expired += len(late)
        error = DeadlineExceeded(
            "the first token would have come after its deadline", retry_after_s=self._gate.queue_s()
        )
        return [RequestFailure(request.request_id, error) for request in late]

    # -- one iteration -------------------------------------------------------------------------------------------------

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or None when nothing can run now."""
        self.costing.pass_time(now)
        self._step_id += 1
        batch = self._planned = Batch(self._step_id, self._limits.max_num_batched_tokens, now)
        preempted = self._plan_decodes(batch, now)
        self._chunks.go_on(batch, of_this_step=True)
        if not preempted:
            self._door.let_pass(batch, now)
        self._chunks.go_on(batch)
        if not preempted:
            self._door.admit(batch, now)
        for key in self.counters.note_evicted(self._residency.take_evicted()):
            self._kv.cool(key)
        batch.is_saturated |= preempted
        self._rates.is_idle = not batch
        if not batch:
            self._rates.stand_still()
            return None
        plan, self.last_shape = batch.write(
            self._residency, adapter_price=self._prices.adapter_per_byte, itemsize=self._itemsize
        )
        self.costing.start_step(batch)
        return plan

    def commit(self, plan: StepPlan, result: StepResult, now: float) -> list[Event]:
        """Take over what the step did, at its end; requests that were aborted meanwhile are passed over."""
        self.costing.pass_time(now)
        self.costing.charge(self._planned, self.last_shape)
        events: list[Event] = list(self._planned.admissions)
        if self._planned.copying:
            self._kv.finish_copies()
        running, sampled, eos_token_ids = self._running.by_id, result.sampled, self._limits.eos_token_ids
        block_size, output_price = self._kv.block_size, self._prices.output
        for row in plan.rows:
            request_id = row.request_id
            request = running.get(request_id)
            if request is None:
                continue
            before, after = request.n_computed, request.n_scheduled
            request.n_computed = after
            if after // block_size != before // block_size:
                self._kv.commit(request_id, after, request.tokens)
            if not row.samples:
                continue
            token = sampled.get(request_id)
            if token is None:
                self._release(request)
                events.append(RequestFailure(request_id, EngineFailure("the model's logits are not finite")))
                continue
            if not row.n_generated:
                self._note_ttft(request, now)
            request.tokens.append(token)
            request.account.charge(output_price)
            finish_reason = request.finish_reason(eos_token_ids)
            events.append(TokenOutput(request_id, token, finish_reason))
            if finish_reason:
                self._release(request)
        self._observe(result.seconds, now - self._planned.planned_s)
        return events

    def fail(self, plan: StepPlan) -> list[RequestFailure]:
        """The step failed: end all the requests it touched; whoever it admitted is among them."""
        error = EngineFailure("the engine failed to compute this request")
        touched = [row.request_id for row in plan.rows] + [request.request_id for request in self._planned.copying]
        if self._planned.copying:
            self._kv.finish_copies()
        return [RequestFailure(name, error) for name in dict.fromkeys(touched) if self.abort(name)]

    def _plan_decodes(self, batch: Batch, now: float) -> bool:
        """Every running request that decodes, oldest first; the answer is whether somebody had to give way."""
        preempted = False
        grow = self._kv.grow
        for request in [request for request in self._running if request.decodes]:
            if request.stage is not Stage.RUNNING:
                continue  # it gave way to an older one just now
            n_tokens = request.n_computed + 1
            table = grow(request.request_id, n_tokens)
            while table is None and self._make_room(request, batch, now):
                preempted = True
                if request.stage is not Stage.RUNNING:
                    break
                table = grow(request.request_id, n_tokens)
            if table is not None:
                request.n_scheduled = n_tokens
                batch.add_decode(request, table)
            elif request.stage is Stage.RUNNING:
                batch.passed_over.append(request)
        return preempted

    def _make_room(self, request: Request, batch: Batch, now: float) -> bool:
        """Preempt somebody for a row that found no block; false when the row shall wait a step instead."""
        if self._kv.n_in_flight:
            return False  # blocks are on their way back already
        victim = self._victims.choose(self._running, step_id=self._step_id)
        if victim is None:
            return False
        soonest = self._victims.soonest_end(self._running, request)
        if soonest is not None and soonest * self._rates.step_s(0) < self._victims.assess(victim).seconds:
            self.counters.preemptions["wait"] += 1
            return False
        batch.remove_decode(victim)
        self._preempt(victim, batch, now)
        return True

    def _preempt(self, request: Request, batch: Batch, now: float) -> None:
        way = self._victims.way(request)
        self.costing.leave(request)
        request.chain.extend(request.tokens, request.n_computed)  # a fork's own blocks are not in it yet
        pairs = self._kv.swap_out(request.request_id, request.n_computed) if way == "swap" else None
        if pairs is not None:
            batch.swap_outs += [BlockCopy(device, host) for device, host in pairs]
            batch.copying.append(request)
            self.counters.swap_bytes["out"] += len(pairs) * self._kv.block_bytes
            request.cost.swap_bytes += len(pairs) * self._kv.block_bytes
            request.stage = Stage.SWAPPED
        else:
            way = "recompute"
            self._kv.release(request.request_id)
            request.n_lost, request.n_computed, request.n_scheduled = request.n_computed, 0, 0
            request.stage = Stage.PREEMPTED
        self.counters.preemptions[way] += 1
        request.n_preemptions += 1
        self._seats.on_preemption(now, len(self._running))
        self._room.park(request, now)  # wants its adapter before it lets go of it
        self._leave_batch(request)

    # -- the ends ------------------------------------------------------------------------------------------------------

    def _release(self, request: Request) -> None:
        """The one way out: give back what the request holds, wherever it is."""
        retired = request.adapter if request.adapter and self._residency.retired(request.adapter) else None
        if request.stage is Stage.RUNNING:
            self.costing.leave(request)
            self._kv.release(request.request_id)
            self._leave_batch(request)
        else:
            if request.stage is Stage.SWAPPED:
                self._kv.release(request.request_id)
            self._room.remove(request)
            self._door.forget(request)
        request.stage = Stage.ENDED
        self.caps.leave(request.siblings)
        if retired:
            self._kv.purge(retired)  # what it computed since

    def _leave_batch(self, request: Request) -> None:
        self._running.remove(request)
        self._adapters.leave(request)
        request.account.n_running -= 1

    def _note_ttft(self, request: Request, now: float) -> None:
        actual_s = now - request.arrival_s
        self.counters.count_ttft(predicted_s=request.predicted_ttft_s, actual_s=actual_s)
        request.account.margin.observe(predicted_s=request.predicted_ttft_s, actual_s=actual_s)

    def _observe(self, computed_s: float, step_s: float) -> None:
        """Learn from a step: `computed_s` on its rows and copies, `step_s` in all."""
        if not self._planned.copying:
            self.timing.observe(self.last_shape, computed_s)
        n_available = self._kv.n_available
        self._rates.observe(
            self.last_shape,
            step_s,
            is_saturated=self._planned.is_saturated,
            n_released=max(0, n_available - self._n_available),
        )
        self._n_available = n_available
