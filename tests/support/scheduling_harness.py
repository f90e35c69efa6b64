"""Drives a scripted engine step by step and checks, after each, everything that must always hold.

What a test submits is remembered here, so that at the end every request is accounted for: it got exactly the answer it
would have got alone, or one error, or it was aborted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from lorikeet_engine.errors import AdapterRetired, AdapterUnavailable, DeadlineExceeded, EngineError, EngineFailure
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import Residency
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.events import Admitted, RequestFailure, TokenOutput
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.plan import Phase, PlanRow, StepPlan
from lorikeet_engine.scheduling.request import NEVER, Request, Stage
from lorikeet_engine.scheduling.waiting.caps import Cap
from tests.support.costs import assert_costs_add_up
from tests.support.scripted_engine_parts import ScriptedEngine, answer_alone

IN_USE = (MemoryState.USED, MemoryState.RESERVED, MemoryState.IN_FLIGHT)


@dataclass
class Harness:
    """One engine and everything that was asked of it.

    Attributes:
        submits: the requests of each submit, and the subjects they count for.
        waits: by request, the steps from its arrival to its first start, and its rank among the waiting when it came.
        spoiled: requests whose logits are not finite from some moment on.
        lost: requests of failed steps.
        forced: requests that were not over when their adapter was retired by force.
        warming: adapters that are being warmed, as long as the outcome was not told.
    """

    engine: ScriptedEngine
    limits: SchedulerLimits
    now: float = 0.0
    n_steps: int = 0
    tokens: dict[str, list[int]] = field(default_factory=dict)
    failures: dict[str, EngineError] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    spoiled: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    forced: set[str] = field(default_factory=set)
    warming: set[AdapterKey] = field(default_factory=set)
    requests: dict[str, Request] = field(default_factory=dict)
    submits: list[tuple[Sequence[Request], set[str]]] = field(default_factory=list)
    arrivals: dict[str, tuple[float, int]] = field(default_factory=dict)
    waits: dict[str, tuple[float, int]] = field(default_factory=dict)

    def submit(self, requests: Sequence[Request], caps: Sequence[Cap] = ()) -> None:
        rank = self.engine.loop.scheduler.n_waiting
        self.engine.loop.submit(requests, self.now, caps)
        self.submits.append((requests, {cap.subject for cap in caps}))
        for request in requests:
            rank += 1
            self.requests[request.request_id] = request
            self.arrivals[request.request_id] = (self.now, rank)

    def abort(self, request_id: str) -> None:
        if self.engine.loop.scheduler.abort(request_id):
            self.aborted.add(request_id)

    def spoil(self, request_id: str) -> None:
        self.engine.runner.not_finite.add(request_id)
        self.spoiled.add(request_id)

    def retire(self, key: AdapterKey, *, force: bool) -> None:
        if force:
            self.forced |= {name for name in self.unfinished() if self.requests[name].adapter == key}
        self.engine.loop.retire(key, force=force)
        self._take_warmed(retired=key)

    def warm(self, key: AdapterKey) -> None:
        self.engine.loop.warm(key, self.now)
        assert not self.engine.loop.residency.retired(key)
        self.warming.add(key)

    def present(self, subject: str) -> tuple[int, int]:
        """Submits of a subject that have requests left, and how many of these have not begun; counted from scratch."""
        here = [
            [request.was_admitted for request in requests]
            for requests, subjects in self.submits
            if subject in subjects and any(request.stage is not Stage.ENDED for request in requests)
        ]
        return len(here), sum(not any(begun) for begun in here)

    def unfinished(self) -> list[str]:
        ended = self.finished | self.aborted | self.failures.keys()
        return [request_id for request_id in self.requests if request_id not in ended]

    def step(self, *, fails: bool = False) -> None:
        """One step; with `fails` the device fails it, if there is anything to compute."""
        runner, loop = self.engine.runner, self.engine.loop
        n_plans, n_failed = len(runner.plans), len(runner.failed)
        runner.fail_next = fails
        waiting_before = [r for r in self.requests.values() if r.stage in (Stage.WAITING, Stage.PREEMPTED)]
        failures_before = set(self.failures)
        for event in loop.step(self.now):
            self._take(event)
        runner.fail_next = False
        self._take_warmed()
        if len(runner.failed) > n_failed:
            self._check_failed(runner.failed[-1], self.failures.keys() - failures_before)
        elif len(runner.plans) > n_plans:
            self._check_plan(runner.plans[-1])
        else:
            self._check_that_idling_is_justified(waiting_before)
        self._check_memory()
        self._check_caps()
        self._check_deadlines()
        self.now += 1.0
        self.n_steps += 1

    def drain(self, *, max_steps: int) -> None:
        """Step until nothing is left, then see that nothing is held and every answer is right."""
        self.step()  # whatever was submitted or aborted last has to be acted upon
        for _ in range(max_steps):
            if not (self.engine.loop.has_work or self.engine.loader.pending):  # a load ends though nobody waits for it
                break
            self.step()
        assert not self.engine.loop.has_work, f"left after {max_steps} steps: {self.unfinished()}"
        self._check_memory()
        loop = self.engine.loop
        for ledger in (loop.kv.ledger, loop.kv.swap_ledger, loop.residency.ledger, loop.residency.host_ledger):
            assert [ledger[state] for state in IN_USE] == [0, 0, 0], ledger.name
        assert loop.kv.block_tables() == {}
        assert self.unfinished() == []
        assert self.warming == set()
        assert len(loop.scheduler.caps) == 0
        assert_costs_add_up(loop, self.requests.values())
        for request_id, request in self.requests.items():
            self._check_answer(request_id, request)

    def _take(self, event: TokenOutput | RequestFailure | Admitted) -> None:
        assert event.request_id not in self.finished | self.failures.keys(), "something came after the end"
        if isinstance(event, Admitted):
            assert event.request_id not in self.waits, "told twice that it began"
            arrived, rank = self.arrivals[event.request_id]
            self.waits[event.request_id] = (self.now - arrived, rank)
        elif isinstance(event, RequestFailure):
            self.failures[event.request_id] = event.error
            self._check_expired(event)
        else:
            assert event.request_id not in self.spoiled, "a token from logits that are not finite"
            assert event.request_id in self.waits, "a token before it began"
            assert event.request_id not in self.aborted, "a token after the abort"
            self.tokens.setdefault(event.request_id, []).append(event.token)
            if event.finish_reason:
                self.finished.add(event.request_id)

    def _take_warmed(self, *, retired: AdapterKey | None = None) -> None:
        """Each adapter that is being warmed gets one outcome, and it is the right one."""
        for key, error, _ in self.engine.loop.take_warmed():
            self.warming.remove(key)
            if key == retired:
                assert isinstance(error, AdapterRetired)
            elif key.digest == "bad":
                assert isinstance(error, AdapterUnavailable)
            else:
                assert error is None
                assert key in self.engine.loader.started  # its image may have left again for that of another one
        assert retired not in self.warming
        assert self.forced & set(self.unfinished()) == set() or retired, "force lasts longer than a step"

    def _check_answer(self, request_id: str, request: Request) -> None:
        got = self.tokens.get(request_id, [])
        expected = answer_alone(request.prompt, request.max_tokens, request.adapter)
        if request_id in self.finished:
            assert got == expected
        else:
            assert got == expected[: len(got)]
            assert request_id in self.aborted or self._is_explained(self.failures[request_id], request)

    def _is_explained(self, error: EngineError, request: Request) -> bool:
        match error:
            case EngineFailure():
                return request.request_id in self.lost | self.spoiled
            case DeadlineExceeded():
                return self.limits.ttft_deadline_s < NEVER and request.request_id not in self.waits
            case AdapterRetired():
                return request.request_id in self.forced or (
                    request.adapter is not None and request.request_id not in self.waits
                )
            case _:
                return request.adapter is not None and request.adapter.digest == "bad"

    def _check_failed(self, plan: StepPlan, failed: set[str]) -> None:
        """Everyone with a row or a copy in it was told, once, and holds nothing; `_take` sees to the once."""
        engine_failures = {name for name in failed if isinstance(self.failures[name], EngineFailure)}
        rows = {row.request_id for row in plan.rows}
        assert rows <= engine_failures
        assert rows == engine_failures or plan.swap_outs or plan.swap_ins or plan.copies
        assert all(self.requests[name].stage is Stage.ENDED for name in engine_failures)
        self.lost |= engine_failures

    def _check_expired(self, failure: RequestFailure) -> None:
        if isinstance(failure.error, DeadlineExceeded):
            request = self.requests[failure.request_id]
            assert not request.was_admitted
            assert not request.siblings.has_begun, "its answer has begun"
            assert self.now <= request.arrival_s + self.limits.ttft_deadline_s + 1.0, "told later than need be"

    def _check_deadlines(self) -> None:
        """Nobody is left in the queue who can only be late, unless it is a part of an answer that has begun."""
        for request in self.requests.values():
            if request.stage is Stage.WAITING and not request.siblings.has_begun:
                assert self.now <= request.arrival_s + self.limits.ttft_deadline_s, (
                    f"{request.request_id} should have been dropped"
                )

    def _check_plan(self, plan: StepPlan) -> None:
        limits = self.limits
        assert plan.n_tokens <= limits.max_num_batched_tokens
        assert len(plan.rows) <= limits.max_num_seqs
        assert self.engine.loop.scheduler.n_running <= limits.max_num_seqs
        running = [r for r in self.requests.values() if r.stage is Stage.RUNNING]
        by_tenant = Counter(request.tenant for request in running)
        most_seats = max(1, int(limits.tenant_seat_share * limits.max_num_seqs))
        assert not by_tenant or max(by_tenant.values()) <= most_seats
        adapters = {r.adapter for r in running if r.adapter} | {row.adapter for row in plan.rows if row.adapter}
        assert len({row.adapter for row in plan.rows if row.adapter}) <= limits.max_adapters_per_step
        assert len(adapters) <= limits.max_adapters_per_step
        names = [row.request_id for row in plan.rows]
        assert len(set(names)) == len(names)
        order = [(row.phase, row.adapter is None, row.adapter or ("", "")) for row in plan.rows]
        assert order == sorted(order)
        for row in plan.rows:
            self._check_row(row)
        written = Counter(block for row in plan.rows for block in self._written(row))
        assert not written or max(written.values()) == 1, "two requests write one block"

    def _check_row(self, row: PlanRow) -> None:
        block, stop = self.engine.loop.kv.block_size, row.start + len(row.token_ids)
        request = self.requests[row.request_id]
        assert len(row.block_table) * block >= stop
        assert len(row.block_table) * block - stop < block or row.phase is Phase.PREFILL
        if row.phase is Phase.DECODE:
            assert len(row.token_ids) == 1
        if not row.samples:
            assert self.limits.enable_chunked_prefill
            assert row.phase is Phase.PREFILL
            assert stop % block == 0, "a chunk that is not the last ends on a block's border"
            assert stop < request.n_prompt + len(self.tokens.get(row.request_id, []))

    def _written(self, row: PlanRow) -> list[int]:
        block, stop = self.engine.loop.kv.block_size, row.start + len(row.token_ids)
        return list(row.block_table[row.start // block : -(-stop // block)])

    def _check_that_idling_is_justified(self, waiting: list[Request]) -> None:
        """Work conservation: with nothing to compute, everybody who waits does so for an adapter that is being read."""
        if self.engine.loop.scheduler.n_running:
            return
        for request in waiting:
            if request.stage in (Stage.WAITING, Stage.PREEMPTED):
                state = self.engine.loop.residency.state(request.adapter) if request.adapter else Residency.RESIDENT
                assert state in (None, Residency.LOADING), f"{request.request_id} could run, its adapter is {state}"

    def _check_caps(self) -> None:
        caps = self.engine.loop.scheduler.caps
        for subject in {subject for _, subjects in self.submits for subject in subjects}:
            present = caps.present(subject)
            assert (len(present), len(present.waiting)) == self.present(subject), subject

    def _check_memory(self) -> None:
        loop = self.engine.loop
        loop.kv.audit()
        loop.residency.audit()
        for ledger in (loop.kv.ledger, loop.kv.swap_ledger, loop.residency.ledger, loop.residency.host_ledger):
            assert sum(ledger[state] for state in MemoryState) == ledger.capacity
        snapshot, block = loop.kv.snapshot(), loop.kv.block_size
        assert snapshot.fragmentation * block <= loop.scheduler.n_running * (block - 1) * loop.kv.block_bytes
        for request in self.requests.values():
            held = request.request_id in loop.kv.block_tables()
            assert held == (request.stage is Stage.RUNNING), f"{request.request_id} is {request.stage}"
