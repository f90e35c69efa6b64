"""The engine's heartbeat: adapters move along, a step is planned, computed and committed.

Drives the runner and the loader through the two small ports below and never touches a tensor. One thread.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lorikeet_engine.cost import ModelCost, StepWork, step_work
from lorikeet_engine.errors import EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.profiling.timeline import NOT_PROFILED, Timeline
from lorikeet_engine.scheduling.events import Event, RequestFailure
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import Scheduler

RATE_WINDOW_S = 10.0
STEP_KINDS = ("prefill", "decode", "mixed", "copy", "failed")
KIND_OF_STEP = {  # by whether it has prompt tokens, and decodes
    (True, False): "prefill",
    (False, True): "decode",
    (True, True): "mixed",
    (False, False): "copy",
}

log = logging.getLogger(__name__)


class Runner(Protocol):
    """The computing side of a step (`execution.runner.ModelRunner`); writes and moves return the seconds they took."""

    def execute(self, plan: StepPlan) -> StepResult: ...
    def write_extent(self, base_grain: int, image: Any) -> float: ...
    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> float: ...


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


def _by_kind() -> Counter[str]:
    return Counter(dict.fromkeys(STEP_KINDS, 0))


@dataclass(slots=True)
class LoopCounters:
    """Totals since the start, for metrics and the overview; `work` is what the model needed, by kind of step."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    steps: Counter[str] = field(default_factory=_by_kind)
    step_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEP_KINDS, 0.0))
    work: dict[str, StepWork] = field(default_factory=lambda: dict.fromkeys(STEP_KINDS, StepWork()))


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
        cost: ModelCost,
        timeline: Timeline = NOT_PROFILED,
    ) -> None:
        self.scheduler = scheduler
        self.kv = kv
        self.residency = residency
        self.counters = LoopCounters()
        self._loader = loader
        self._runner = runner
        self._cost = cost
        self._timeline = timeline
        self._images: dict[AdapterKey, Any] = {}  # packed, in host memory; the residency says which to keep
        self._events: list[Event] = []  # of what happened between two steps
        self._recent: deque[tuple[float, int]] = deque()

    def submit(self, requests: Sequence[Request], now: float) -> None:
        """Queue the requests of one submit; raises what `Scheduler.submit` raises."""
        self.scheduler.submit(requests, now)

    def abort(self, request_id: str) -> None:
        self.scheduler.abort(request_id)

    def retire(self, key: AdapterKey) -> None:
        """Take an adapter out of service; requests that have not begun are told with the next step."""
        self._events += self.scheduler.retire(key)

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.n_running or self.scheduler.n_waiting or self._events)

    @property
    def is_computing(self) -> bool:
        """Whether the next step has something to compute; waiting requests alone may be waiting for a load."""
        return self.scheduler.n_running > 0

    def step(self, now: float) -> list[Event]:
        """One iteration, begun at `now`; what it returns belongs to the requests' clients."""
        phase = self._timeline.phase
        events, self._events = self._events, []
        with phase("collect loads"):
            events += self._collect_loads(now)
        with phase("reap"):
            events += self.scheduler.reap(now)
        with phase("plan"):
            plan = self.scheduler.plan(now)
        with phase("start loads"):
            self._move_images()
        if plan is None:
            return events
        kind = self._kind_of_step()
        self._timeline.computes(plan, kind)
        # A failed placement leaves the arena unknown: it ends the process, not one request.
        with phase("place"):
            placed_s = self._place_adapters(plan)
        try:
            with phase("execute"):
                result = self._runner.execute(plan)
        except Exception:
            log.exception("step %d with %d rows failed", plan.step_id, len(plan.rows))
            self.counters.steps["failed"] += 1
            return events + self.scheduler.fail(plan)
        end = now + placed_s + result.seconds
        with phase("commit"):
            events += self.scheduler.commit(plan, result, end)
            self._count(kind, len(result.sampled), placed_s + result.seconds, end)
        return events

    def tokens_per_second(self, now: float) -> float:
        """Sampled tokens a second over the last 10 s."""
        self._forget_old(now)
        return sum(n for _, n in self._recent) / RATE_WINDOW_S

    def _forget_old(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
            self._recent.popleft()

    def _collect_loads(self, now: float) -> list[RequestFailure]:
        failures: list[RequestFailure] = []
        for loaded in self._loader.poll():
            error = loaded.error
            if error is None:
                self._images[loaded.key] = loaded.image
                try:
                    self.residency.on_loaded(loaded.key, loaded.image.n_grains, now)
                    continue
                except EngineError as too_large:
                    error = too_large
            else:
                self.residency.on_failed(loaded.key)
            log.warning("adapter %s could not be loaded: %s", loaded.key.digest, error.message)
            failures += self.scheduler.fail_waiting_for(loaded.key, error)
        return failures

    def _move_images(self) -> None:
        """Free the images that have to go, start the loads whose time has come."""
        for key in self.residency.take_dropped():
            self._images.pop(key, None)
        for key in self.residency.take_loads():
            self._loader.start(key)

    def _place_adapters(self, plan: StepPlan) -> float:
        """Bring the plan's adapters to their places; returns the seconds that took."""
        seconds = 0.0
        for placement in plan.placements:
            for move in placement.moves:
                seconds += self._runner.move_extent(move.source, move.target, move.n_grains)
            seconds += self._runner.write_extent(placement.base, self._images[placement.key])
            self.residency.on_placed(placement.key)
        return seconds

    def _kind_of_step(self) -> str:
        shape = self.scheduler.last_shape
        return KIND_OF_STEP[bool(shape.n_prefill), bool(shape.n_decode)]

    def _count(self, kind: str, n_sampled: int, seconds: float, end: float) -> None:
        shape, counters = self.scheduler.last_shape, self.counters
        counters.prompt_tokens += shape.n_prefill
        counters.generated_tokens += n_sampled
        counters.steps[kind] += 1
        counters.step_seconds[kind] += seconds
        counters.work[kind] = counters.work[kind] + step_work(self._cost, shape)
        self._recent.append((end, n_sampled))
        self._forget_old(end)
