"""A scripted engine under a virtual clock: steps it, audits it after each step, and keeps what requests were told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lorikeet_engine.errors import EngineError
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.counters import SchedulerCounters
from lorikeet_engine.scheduling.events import Admitted, RequestFailure, TokenOutput
from lorikeet_engine.scheduling.plan import PlanRow, StepPlan
from lorikeet_engine.scheduling.request import FinishReason, Request
from lorikeet_engine.scheduling.scheduler import Scheduler
from lorikeet_engine.scheduling.waiting.caps import Cap
from tests.support.scripted_engine_parts import ScriptedEngine, answer_alone, scripted_engine

IN_USE = (MemoryState.USED, MemoryState.RESERVED, MemoryState.IN_FLIGHT)


@dataclass
class SteppedEngine:
    """One engine, the time, and what happened to every request."""

    engine: ScriptedEngine
    now: float = 0.0
    requests: dict[str, Request] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    finished: dict[str, FinishReason] = field(default_factory=dict)
    admitted: dict[str, Admitted] = field(default_factory=dict)
    errors: dict[str, EngineError] = field(default_factory=dict)

    @property
    def loop(self) -> EngineLoop:
        return self.engine.loop

    @property
    def scheduler(self) -> Scheduler:
        return self.engine.loop.scheduler

    @property
    def kv(self) -> KvManager:
        return self.engine.loop.kv

    @property
    def residency(self) -> AdapterResidency:
        return self.engine.loop.residency

    @property
    def counters(self) -> SchedulerCounters:
        return self.engine.loop.scheduler.counters

    @property
    def plans(self) -> list[StepPlan]:
        """Of every step that was computed."""
        return self.engine.runner.plans

    def submit(self, *requests: Request) -> None:
        """One submit each."""
        for one in requests:
            self.submit_together([one])

    def submit_together(self, requests: Sequence[Request], caps: Sequence[Cap] = ()) -> None:
        self.loop.submit(requests, self.now, caps)
        self.requests.update({one.request_id: one for one in requests})

    def step(self, n: int = 1) -> StepPlan | None:
        """`n` steps, a runner's `step_s` apart; the answer is what the last one computed, if anything."""
        plan = None
        for _ in range(n):
            n_plans = len(self.plans)
            for event in self.loop.step(self.now):
                self._take(event)
            plan = self.plans[-1] if len(self.plans) > n_plans else None
            self.audit()
            self.now += self.engine.runner.step_s
        return plan

    def step_until(self, is_reached: Callable[[], Any], *, max_steps: int = 500) -> None:
        for _ in range(max_steps):
            if is_reached():
                return
            self.step()
        raise AssertionError(f"not reached after {max_steps} steps")

    def drain(self, *, max_steps: int = 2000) -> None:
        """Step until nothing is left; nobody holds anything then, and who got tokens got those of a run alone."""
        self.step_until(lambda: not self.loop.has_work, max_steps=max_steps)
        self.assert_all_is_released()
        for request_id, request in self.requests.items():
            got = self.tokens.get(request_id, [])
            expected = answer_alone(request.prompt, request.max_tokens, request.adapter)
            assert got == expected[: len(got)], request_id
            if self.finished.get(request_id) is FinishReason.LENGTH:
                assert got == expected, request_id

    def audit(self) -> None:
        self.kv.audit()
        self.residency.audit()

    def assert_all_is_released(self) -> None:
        self.audit()
        for ledger in (self.kv.ledger, self.kv.swap_ledger, self.residency.ledger, self.residency.host_ledger):
            assert [ledger[state] for state in IN_USE] == [0, 0, 0], ledger.name
        assert self.kv.block_tables() == {}
        assert self.scheduler.tenants() == []
        assert (self.scheduler.n_running, self.scheduler.n_waiting) == (0, 0)

    def rows_of(self, request_id: str) -> list[PlanRow]:
        return [row for plan in self.plans for row in plan.rows if row.request_id == request_id]

    def order_of_starts(self) -> list[str]:
        return list(self.admitted)

    def service_of(self, tenant: str) -> float:
        """The tenant's virtual token counter; it must have work."""
        return next(load.service for load in self.scheduler.tenants() if load.tenant == tenant)

    def _take(self, event: TokenOutput | RequestFailure | Admitted) -> None:
        name = event.request_id
        assert name not in self.finished.keys() | self.errors.keys(), f"{name} was told something after its end"
        match event:
            case TokenOutput():
                assert name in self.admitted
                self.tokens.setdefault(name, []).append(event.token)
                if event.finish_reason:
                    self.finished[name] = event.finish_reason
            case Admitted():
                assert name not in self.admitted, f"{name} was told twice that it began"
                self.admitted[name] = event
            case RequestFailure():
                self.errors[name] = event.error


def stepped_engine(**settings: Any) -> SteppedEngine:
    """See `scripted_engine` for the settings."""
    return SteppedEngine(scripted_engine(**settings))
