"""The engine's heartbeat: adapters move along, a step is planned, computed and committed.

Drives the runner and the loader through the small ports below and never touches a tensor. One thread.

Where the device works beside the host (`Launcher`), a step is left in its hands at the end of one iteration and
committed at the start of the next: meanwhile the caller sends what the step before has made, and takes new requests.
The next step is planned when this one is known, so nothing is decided on guesses.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lorikeet_engine.cost import ModelCost, StepWork, step_work
from lorikeet_engine.errors import AdapterRetired, DeviceLost, EngineError
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.observing.observer import NOT_OBSERVED, Observer, StepTaken
from lorikeet_engine.profiling.timeline import NOT_PROFILED, Timeline
from lorikeet_engine.scheduling.events import Event, RequestFailure
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import Scheduler
from lorikeet_engine.scheduling.waiting.caps import Cap
from lorikeet_engine.scheduling.waiting.warming import Warming, WarmOutcome

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


class Launcher(Protocol):
    """A runner whose device goes on while the host does something else."""

    def launch(self, plan: StepPlan) -> None: ...
    def collect(self) -> StepResult:
        """The outcome of the launched step; waits for it, and says how long."""
        ...


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
    decode_tokens: int = 0
    generated_tokens: int = 0
    steps: Counter[str] = field(default_factory=_by_kind)
    step_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEP_KINDS, 0.0))
    work: dict[str, StepWork] = field(default_factory=lambda: dict.fromkeys(STEP_KINDS, StepWork()))


class Retirement(NamedTuple):
    """An adapter is to go out of service; with `force` what runs on it ends at once."""

    key: AdapterKey
    force: bool


class WarmUp(NamedTuple):
    """An adapter is to be in service, and its image in host memory; the outcome has the tickets."""

    key: AdapterKey
    tickets: tuple[Hashable, ...]


@dataclass(slots=True)
class Flight:
    """A step in the device's hands, and what was asked for meanwhile that would change what it computes with.

    `running`, `waiting` and `kv_used_bytes` are as it was planned.
    """

    plan: StepPlan
    kind: str
    running: int
    waiting: int
    kv_used_bytes: int
    placed_s: float = 0.0
    aborted: list[str] = field(default_factory=list)
    orders: list[Retirement | WarmUp] = field(default_factory=list)  # of one adapter the last one counts


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
        launcher: Launcher | None = None,
        timeline: Timeline = NOT_PROFILED,
        observer: Observer = NOT_OBSERVED,
    ) -> None:
        """`launcher`: the runner, if it is one."""
        self.scheduler = scheduler
        self.kv = kv
        self.residency = residency
        self.warming = Warming(residency)
        self.counters = LoopCounters()
        self.observer = observer
        self._loader = loader
        self._runner = runner
        self._launcher = launcher
        self._flight: Flight | None = None
        self._cost = cost
        self._timeline = timeline
        self._images: dict[AdapterKey, Any] = {}  # packed, in host memory; the residency says which to keep
        self._loading: dict[AdapterKey, float] = {}  # since when
        self._events: list[Event] = []  # of what happened between two steps
        self._warmed: list[WarmOutcome] = []
        self._recent: deque[tuple[float, int]] = deque()

    def submit(self, requests: Sequence[Request], now: float, caps: Sequence[Cap] = ()) -> None:
        """Queue the requests of one submit; raises what `Scheduler.submit` raises."""
        self.scheduler.submit(requests, now, caps)
        self.observer.submitted(requests)

    def abort(self, request_id: str) -> None:
        """Drop a request; no event of it comes any more."""
        self.observer.aborted(request_id)
        if self._flight:
            self._flight.aborted.append(request_id)
        else:
            self.scheduler.abort(request_id)

    def retire(self, key: AdapterKey, *, force: bool = False) -> None:
        """Take an adapter out of service; requests that end with it are told with the next step or the one after."""
        if self._flight:
            self._flight.orders.append(Retirement(key, force))
        else:
            self._events += self._retire(Retirement(key, force))

    def warm(self, key: AdapterKey, now: float, *tickets: Hashable) -> None:
        """Put an adapter into service and bring its image into host memory; `take_warmed` says how it ended.

        `tickets` are of whoever wants to be told, and come back with the outcome.
        """
        if self._flight:
            self._flight.orders.append(WarmUp(key, tickets))
        else:
            self.warming.start(key, now, *tickets)

    def take_warmed(self) -> list[WarmOutcome]:
        """How warming adapters has ended since the last call; one outcome for all who asked meanwhile."""
        warmed, self._warmed = self._warmed, []
        return warmed

    def _retire(self, order: Retirement) -> list[RequestFailure]:
        self._warmed += self.warming.end(order.key, AdapterRetired("the adapter was taken out of service meanwhile"))
        return self._ended(self.scheduler.retire(order.key, force=order.force))

    def _ended(self, failures: list[RequestFailure]) -> list[RequestFailure]:
        if failures:
            self.observer.failed(failures)
        return failures

    @property
    def has_work(self) -> bool:
        scheduler = self.scheduler
        return bool(self._flight or scheduler.n_running or scheduler.n_waiting or self._events or self.warming)

    @property
    def is_computing(self) -> bool:
        """Whether the next step has something to compute; waiting requests alone may be waiting for a load."""
        return self._flight is not None or self.scheduler.n_running > 0

    def step(self, now: float) -> list[Event]:
        """One iteration, begun at `now`; what it returns belongs to the requests' clients."""
        phase = self._timeline.phase
        events, self._events = self._events, []
        if self._flight:
            landed, now = self._land(now)
            events += landed
        with phase("collect loads"):
            events += self._ended(self._collect_loads(now))
        with phase("reap"):
            events += self._ended(self.scheduler.reap(now))
        with phase("plan"):
            plan = self.scheduler.plan(now)
            if news := self.scheduler.counters.take_adapter_news():
                self.observer.adapters_moved(news)
        with phase("start loads"):
            self._move_images(now)
        if plan is None:
            return events
        flight = self._flight_of(plan)
        self._timeline.computes(plan, flight.kind)
        # A failed placement leaves the arena unknown: it ends the process, not one request.
        with phase("place"):
            flight.placed_s = self._place_adapters(plan)
        try:
            with phase("execute"):
                if self._launcher:
                    self._launcher.launch(plan)
                    self._flight = flight
                    return events
                result = self._runner.execute(plan)
        except DeviceLost:
            raise
        except Exception:
            return events + self._fail(plan)
        return events + self._commit(flight, result, now + flight.placed_s + result.seconds)

    def _land(self, now: float) -> tuple[list[Event], float]:
        """Take over the step that the device was left with, then do what had to wait for it; also when that was."""
        flight, self._flight = self._flight, None
        assert flight is not None
        assert self._launcher is not None
        try:
            with self._timeline.phase("collect"):
                result = self._launcher.collect()
        except DeviceLost:
            raise
        except Exception:
            events: list[Event] = [*self._fail(flight.plan)]
        else:
            # By the caller's clock: what the host did beside the device is in none of the step's own times.
            now += result.waited_s
            events = self._commit(flight, result, now)
        for request_id in flight.aborted:
            self.scheduler.abort(request_id)
        for order in flight.orders:
            if isinstance(order, Retirement):
                events += self._retire(order)
            else:
                self.warming.start(order.key, now, *order.tickets)
        gone = set(flight.aborted)
        return [event for event in events if event.request_id not in gone], now

    def _commit(self, flight: Flight, result: StepResult, end: float) -> list[Event]:
        seconds = flight.placed_s + result.seconds
        with self._timeline.phase("commit"):
            events = self.scheduler.commit(flight.plan, result, end)
            self._count(flight.kind, len(result.sampled), seconds, end)
        with self._timeline.phase("observe"):
            step = StepTaken(
                flight.kind, self.scheduler.last_shape, self.scheduler.last_adapters, end, seconds,
                flight.running, flight.waiting, flight.kv_used_bytes,
            )  # fmt: skip
            self.observer.stepped(step, events)
        return events

    def _fail(self, plan: StepPlan) -> list[RequestFailure]:
        """Called from where the error was caught."""
        log.exception("step %d with %d rows failed", plan.step_id, len(plan.rows))
        self.counters.steps["failed"] += 1
        return self._ended(self.scheduler.fail(plan))

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
            error = self._take_in(loaded, now)
            if error is not None:
                log.warning("adapter %s could not be loaded: %s", loaded.key.digest, error.message)
                failures += self.scheduler.fail_waiting_for(loaded.key, error)
                self._warmed += self.warming.end(loaded.key, error)
        self._warmed += self.warming.arrived()
        return failures

    def _take_in(self, loaded: LoadedAdapter, now: float) -> EngineError | None:
        """Note how a load has ended; the answer is what to tell who waits for it, if it failed."""
        began = self._loading.pop(loaded.key)
        if loaded.error is not None:
            return self.residency.on_failed(loaded.key, loaded.error, now)
        self.observer.adapter_loaded("disk", now - began)
        self._images[loaded.key] = loaded.image
        try:
            self.residency.on_loaded(loaded.key, loaded.image.n_grains, now)
        except EngineError as too_large:
            return too_large
        return None

    def _move_images(self, now: float) -> None:
        """Free the images that have to go, start the loads whose time has come."""
        for key in self.residency.take_dropped():
            self._images.pop(key, None)
        for key in self.residency.take_loads():
            self._loading[key] = now
            self._loader.start(key)

    def _place_adapters(self, plan: StepPlan) -> float:
        """Bring the plan's adapters to their places; returns the seconds that took."""
        total = 0.0
        for placement in plan.placements:
            seconds = 0.0
            for move in placement.moves:
                seconds += self._runner.move_extent(move.source, move.target, move.n_grains)
            seconds += self._runner.write_extent(placement.base, self._images[placement.key])
            self.residency.on_placed(placement.key)
            self.observer.adapter_loaded("host", seconds)
            total += seconds
        if plan.placements:
            self.observer.adapters_placed([placement.key for placement in plan.placements])
        return total

    def _flight_of(self, plan: StepPlan) -> Flight:
        scheduler, shape = self.scheduler, self.scheduler.last_shape
        kind = KIND_OF_STEP[bool(shape.n_prefill), bool(shape.n_decode)]
        return Flight(
            plan, kind, scheduler.n_running, scheduler.n_waiting, kv_used_bytes=self.kv.ledger[MemoryState.USED]
        )

    def _count(self, kind: str, n_sampled: int, seconds: float, end: float) -> None:
        shape, counters = self.scheduler.last_shape, self.counters
        counters.prompt_tokens += shape.n_prefill
        counters.decode_tokens += shape.n_decode
        counters.generated_tokens += n_sampled
        counters.steps[kind] += 1
        counters.step_seconds[kind] += seconds
        counters.work[kind] = counters.work[kind] + step_work(self._cost, shape)
        self._recent.append((end, n_sampled))
        self._forget_old(end)
