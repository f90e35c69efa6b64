"""The engine's heartbeat: adapters move along, a step is planned, computed and committed.

Drives the runner and the loader through the two small ports below and never touches a tensor. One thread.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lorikeet_engine.errors import EngineError, EngineFailure
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapter_residency import AdapterResidency
from lorikeet_engine.memory.kv_manager import KvManager
from lorikeet_engine.scheduling.plan import Phase, StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import RequestFailure, Scheduler, TokenOutput

RATE_WINDOW_S = 10.0

log = logging.getLogger(__name__)


class Runner(Protocol):
    """The computing side of a step (`execution.runner.ModelRunner`)."""

    def execute(self, plan: StepPlan) -> StepResult: ...
    def write_extent(self, base_grain: int, image: Any) -> None: ...
    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> None: ...


class LoadedAdapter(Protocol):
    """The end of one load: an image with `n_grains`, or the error that a request for it gets."""

    @property
    def key(self) -> AdapterKey: ...
    @property
    def image(self) -> Any: ...
    @property
    def error(self) -> EngineError | None: ...


class Loader(Protocol):
    """Reads, verifies and packs adapters beside the loop (`lora.loader.AdapterLoader`)."""

    def start(self, key: AdapterKey) -> None: ...
    def poll(self) -> Sequence[LoadedAdapter]: ...


@dataclass(slots=True)
class LoopCounters:
    """Totals since the start, for metrics and the overview."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    steps: Counter[str] = field(default_factory=lambda: Counter(prefill=0, decode=0, mixed=0, failed=0))


class EngineLoop:
    """Ties scheduler, memory, loader and runner together."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        kv: KvManager,
        residency: AdapterResidency,
        loader: Loader,
        runner: Runner,
    ) -> None:
        self.scheduler = scheduler
        self.kv = kv
        self.residency = residency
        self.counters = LoopCounters()
        self._loader = loader
        self._runner = runner
        self._images: dict[AdapterKey, Any] = {}  # packed, in host memory, waiting for room in the arena
        self._recent: deque[tuple[float, int]] = deque()

    def submit(self, request: Request) -> None:
        """Queue a request; raises what `Scheduler.submit` raises."""
        self.scheduler.submit(request)

    def abort(self, request_id: str) -> None:
        self.scheduler.abort(request_id)

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.n_running or self.scheduler.n_waiting)

    @property
    def is_computing(self) -> bool:
        """Whether the next step has something to compute; waiting requests alone may be waiting for a load."""
        return self.scheduler.n_running > 0

    def step(self, now: float) -> list[TokenOutput | RequestFailure]:
        """One iteration; what it returns belongs to the requests' clients."""
        events: list[TokenOutput | RequestFailure] = [*self._collect_loads()]
        self._drop_unwanted_images()
        plan = self.scheduler.plan()
        for key in self.residency.take_loads():
            self._loader.start(key)
        if plan is None:
            return events
        self._place_adapters(plan)  # a failed copy leaves the arena unknown: it ends the process, not one request
        try:
            result = self._runner.execute(plan)
        except Exception:
            log.exception("step %d with %d rows failed", plan.step_id, len(plan.rows))
            return events + self._fail_step(plan)
        outputs = self.scheduler.commit(plan, result)
        self._count(plan, len(result.sampled), now)
        return events + outputs

    def tokens_per_second(self, now: float) -> float:
        """Sampled tokens a second over the last 10 s."""
        while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
            self._recent.popleft()
        return sum(n for _, n in self._recent) / RATE_WINDOW_S

    def _collect_loads(self) -> list[RequestFailure]:
        failures: list[RequestFailure] = []
        for loaded in self._loader.poll():
            error = loaded.error
            if error is None:
                try:
                    self.residency.on_loaded(loaded.key, loaded.image.n_grains)
                    self._images[loaded.key] = loaded.image
                    continue
                except EngineError as too_large:
                    error = too_large
            else:
                self.residency.on_failed(loaded.key)
            log.warning("adapter %s could not be loaded: %s", loaded.key.digest, error.message)
            waiting = self.scheduler.take_waiting_for(loaded.key)
            failures += [RequestFailure(request_id, error) for request_id in waiting]
        return failures

    def _drop_unwanted_images(self) -> None:
        """Images whose requests went away before their turn; others wait for the place they hold in host memory."""
        for key in [key for key in self._images if not self.scheduler.is_waiting_for(key)]:
            del self._images[key]
            self.residency.forget(key)

    def _fail_step(self, plan: StepPlan) -> list[RequestFailure]:
        self.counters.steps["failed"] += 1
        failure = EngineFailure("the engine failed to compute this request")
        return [RequestFailure(request_id, failure) for request_id in self.scheduler.fail(plan)]

    def _place_adapters(self, plan: StepPlan) -> None:
        for placement in plan.placements:
            for move in placement.moves:
                self._runner.move_extent(move.source, move.target, move.n_grains)
            self._runner.write_extent(placement.base, self._images.pop(placement.key))
            self.residency.on_placed(placement.key)

    def _count(self, plan: StepPlan, n_sampled: int, now: float) -> None:
        n_prefill = sum(len(row.token_ids) for row in plan.rows if row.phase is Phase.PREFILL)
        has_decode = plan.rows[0].phase is Phase.DECODE
        counters = self.counters
        counters.prompt_tokens += n_prefill
        counters.generated_tokens += n_sampled
        counters.steps["decode" if not n_prefill else "mixed" if has_decode else "prefill"] += 1
        self._recent.append((now, n_sampled))
