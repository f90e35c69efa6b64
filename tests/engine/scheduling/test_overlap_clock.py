"""A loop over a device that really takes its time: what it tells of times is what its caller sees."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from lorikeet_engine.observing.observatory import Observatory
from lorikeet_engine.observing.observer import StepTaken
from lorikeet_engine.scheduling.events import Event, TokenOutput
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from tests.support.scripted_engine_parts import ScriptedEngine, ScriptedLoader, request, scripted_engine

DEVICE_S = 0.02
HOST_S = 0.0005  # between the end of a step and the launch of the next one
N_STEPS = 120
PROBE_EVERY = 8
TOLERANCE_S = 0.005


@dataclass
class SlowDevice:
    """Works for `DEVICE_S` from the launch on, whatever the host does meanwhile."""

    plan: StepPlan | None = None
    launched_s: float = 0.0

    def launch(self, plan: StepPlan) -> None:
        self.plan, self.launched_s = plan, time.perf_counter()

    def collect(self) -> StepResult:
        assert self.plan is not None
        called_s = time.perf_counter()
        time.sleep(max(0.0, self.launched_s + DEVICE_S - called_s))
        ended_s = time.perf_counter()
        sampled = {row.request_id: 7 for row in self.plan.rows if row.samples}
        return StepResult(self.plan.step_id, sampled, ended_s - self.launched_s, waited_s=ended_s - called_s)


@dataclass
class SlowLoader(ScriptedLoader):
    """The host is busy, too."""

    def poll(self) -> list[Any]:
        time.sleep(HOST_S)
        return super().poll()


@dataclass
class Caller:
    """Turns a loop as the engine's server does, and keeps what it sees by its own clock."""

    engine: ScriptedEngine
    sent_s: dict[str, float] = field(default_factory=dict)
    first_s: dict[str, float] = field(default_factory=dict)

    def send(self, name: str, **settings: Any) -> None:
        self.sent_s[name] = time.monotonic()
        self.engine.loop.submit([request(name, ignore_eos=True, **settings)], self.sent_s[name])

    def turn(self) -> None:
        for event in self.engine.loop.step(time.monotonic()):
            if isinstance(event, TokenOutput):
                self.first_s.setdefault(event.request_id, time.monotonic())


def test_times_told_are_those_that_the_caller_of_an_overlapping_loop_sees() -> None:
    """The ends of steps do not fall behind the clock, by the host's own time a step, until they are a step behind."""
    engine = scripted_engine(overlaps=True, n_blocks=400, max_model_len=400, max_num_seqs=8)
    loop, device = engine.loop, SlowDevice()
    loop._launcher, loop._loader = device, SlowLoader()
    observer = loop.observer
    assert isinstance(observer, Observatory)
    lags: list[float] = []
    take = observer.stepped

    def stepped(step: StepTaken, events: Sequence[Event]) -> None:
        lags.append(time.monotonic() - step.end_s)
        take(step, events)

    observer.stepped = stepped  # type: ignore[method-assign]
    caller = Caller(engine)
    for i in range(4):
        caller.send(f"long{i}", max_tokens=300)
    for i in range(N_STEPS):
        caller.turn()
        if i % PROBE_EVERY == 0:
            caller.send(f"probe{i}", tenant="probe", max_tokens=1)
    probes = [name for name in caller.sent_s if name.startswith("probe") and name in caller.first_s]
    seen_s = mean(caller.first_s[name] - caller.sent_s[name] for name in probes)
    (told,) = [
        bins
        for bins in observer.observed(0.0).bins
        if (bins.measure, bins.by, bins.label) == ("ttft", "tenant", "probe")
    ]
    assert sum(told.counts) == len(probes) > N_STEPS // PROBE_EVERY - 3
    assert abs(told.sum_s / len(probes) - seen_s) < TOLERANCE_S
    assert seen_s > 1.5 * DEVICE_S
    assert abs(median(lags[-20:])) < TOLERANCE_S
    steps = observer.steps_after(float("-inf"))
    assert [step.end_s for step in steps] == sorted(step.end_s for step in steps)
