"""An engine to ask, and how to ask it: requests in waves, answers out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from lorikeet_engine.build import Engine
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.errors import EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.events import Admitted, RequestFailure, TokenOutput
from lorikeet_engine.scheduling.plan import PlanRow, SamplingParams, StepPlan, StepResult
from lorikeet_engine.scheduling.request import FinishReason, Request
from tests.engine.equality.prompts import BASE, N_TOKENS, adapter_dirs

TENANT = "tenant"
OTHER_TENANT = "other-tenant"
STEP_S = 0.02  # the virtual time that a step takes
IDLE_S = 0.001  # the real time to give a load when there is nothing to compute
MAX_STEPS = 20_000
GREEDY = SamplingParams()
NAMES = (BASE, *adapter_dirs())


@dataclass(frozen=True)
class AdapterStore:
    """A blob store's folder, the digests of the demo adapters in it, and the bytes of the largest one packed."""

    folder: Path
    digests: dict[str, str]
    largest_bytes: int


@dataclass(slots=True)
class Answer:
    """What one request got; `cached_tokens` is None until it was admitted."""

    tokens: list[int] = field(default_factory=list)
    cached_tokens: int | None = None
    finish_reason: FinishReason | None = None
    error: EngineError | None = None


@dataclass
class Workbench:
    """A built engine, the digests of the demo adapters in its store, and what was asked of it.

    Attributes:
        now: virtual seconds; they only grow, whoever uses the engine next.
        plans: every step so far.
    """

    engine: Engine
    digests: dict[str, str]
    config: EngineConfig
    now: float = 0.0
    plans: list[StepPlan] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        execute = self.engine.runner.execute

        def recorded(plan: StepPlan) -> StepResult:
            self.plans.append(plan)
            return execute(plan)

        self.engine.runner.execute = recorded  # type: ignore[method-assign]

    def key(self, name: str, tenant: str = TENANT) -> AdapterKey:
        return AdapterKey(tenant, self.digests[name])

    def submit(self, requests: Sequence[Request]) -> None:
        """All of one group, or none; raises what the engine refuses them with."""
        self.engine.loop.submit(requests, self.now)
        self.answers |= {request.request_id: Answer() for request in requests}

    def step(self) -> None:
        """One iteration of the loop; its events end up in `answers`."""
        n_planned = len(self.plans)
        for event in self.engine.loop.step(self.now):
            answer = self.answers[event.request_id]
            match event:
                case TokenOutput():
                    answer.tokens.append(event.token)
                    answer.finish_reason = event.finish_reason
                case Admitted():
                    answer.cached_tokens = event.cached_tokens
                case RequestFailure():
                    answer.error = event.error
        self.now += STEP_S
        if len(self.plans) == n_planned:
            time.sleep(IDLE_S)

    def drain(self) -> None:
        """Step until nothing is left to do."""
        for _ in range(MAX_STEPS):
            if not self.engine.loop.has_work:
                return
            self.step()
        raise AssertionError(f"the engine still has work after {MAX_STEPS} steps")

    def rows_since(self, n_plans: int) -> list[PlanRow]:
        return [row for plan in self.plans[n_plans:] for row in plan.rows]


class OpenBench(Protocol):
    """Builds an engine with settings of `EngineConfig`; it is closed with the test."""

    def __call__(self, **settings: Any) -> Workbench: ...


def make_request(
    bench: Workbench,
    name: str,
    index: int,
    prompt: Sequence[int],
    max_tokens: int = N_TOKENS["chat"],
    *,
    tenant: str = TENANT,
    sampling: SamplingParams = GREEDY,
    label: str = "",
) -> Request:
    """A request named after its adapter (or the base model), the prompt's index, and what tells it from others."""
    return Request(
        request_id=f"{label}{name}-{index}",
        tenant=tenant,
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        sampling=sampling,
        adapter=None if name == BASE else bench.key(name, tenant),
        cache_salt=tenant.encode(),
    )


def recorded_requests(
    bench: Workbench,
    reference: dict[str, Any],
    kind: str,
    *,
    names: Sequence[str] = NAMES,
    n_tokens: int | None = None,
    tenant: str = TENANT,
    label: str = "",
) -> list[Request]:
    """Every prompt of one kind, asked of every name, whose answers `recorded_tokens` has under the same ids."""
    return [
        make_request(bench, name, index, prompt, n_tokens or N_TOKENS[kind], tenant=tenant, label=label)
        for index, prompt in enumerate(reference["prompts"][kind])
        for name in names
    ]


def recorded_tokens(
    reference: dict[str, Any],
    kind: str,
    *,
    names: Sequence[str] = NAMES,
    n_tokens: int | None = None,
    label: str = "",
) -> dict[str, list[int]]:
    """The oracle's answers, or their first `n_tokens` tokens, by the ids of `recorded_requests`."""
    return {
        f"{label}{name}-{index}": tokens[:n_tokens]
        for name in names
        for index, tokens in enumerate(reference["tokens"][kind][name])
    }


def forks_of(request: Request, n: int) -> list[Request]:
    """The sequences that the server makes of one request with `n` > 1."""
    return [
        Request(
            request_id=request.request_id if index == 0 else f"{request.request_id}#{index}",
            tenant=request.tenant,
            prompt=request.prompt,
            max_tokens=request.max_tokens,
            sampling=replace(request.sampling, seed=request.sampling.seed + (index << 64)),
            adapter=request.adapter,
            cache_salt=request.cache_salt,
        )
        for index in range(n)
    ]


def run(bench: Workbench, waves: Sequence[Sequence[Request]], *, steps_between: int) -> dict[str, list[int]]:
    """Submit wave after wave, a few steps apart, and step until all are done; every request must succeed."""
    names = [request.request_id for wave in waves for request in wave]
    for wave in waves:
        for request in wave:
            bench.submit([request])
        for _ in range(steps_between):
            bench.step()
    bench.drain()
    answers = {name: bench.answers.pop(name) for name in names}
    assert not any(answer.error for answer in answers.values()), answers
    return {name: answer.tokens for name, answer in answers.items()}


def ask(bench: Workbench, requests: Sequence[Request]) -> dict[str, Answer]:
    """Submit together, run to the end, and hand the answers over."""
    for request in requests:
        bench.submit([request])
    bench.drain()
    return {request.request_id: bench.answers.pop(request.request_id) for request in requests}
