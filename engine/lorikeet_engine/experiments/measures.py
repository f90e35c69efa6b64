"""What the records of a point show: rates, percentiles, and the work of its steps by kind.

Knows records only, wherever they were made, and asks `cost` for every formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lorikeet_engine.cost import StepWork, intensity, mbu, mfu
from lorikeet_engine.experiments.record import Machine, PointRecord, Reading
from lorikeet_engine.simulation.report.samples import mean, percentile


class Line(NamedTuple):
    """y = intercept + slope · x, and how much of y it explains."""

    intercept: float
    slope: float
    r_squared: float


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """Least squares through at least two different x."""
    mx, my = mean([x for x, _ in points]), mean([y for _, y in points])
    sxx = sum((x - mx) ** 2 for x, _ in points)
    sxy = sum((x - mx) * (y - my) for x, y in points)
    syy = sum((y - my) ** 2 for _, y in points)
    slope = sxy / sxx
    return Line(my - slope * mx, slope, sxy * sxy / (sxx * syy) if syy else 1.0)


@dataclass(frozen=True, slots=True)
class Peaks:
    """What MFU and MBU refer to."""

    peak_flops: float
    peak_bandwidth: float


def peaks_of(machine: Machine) -> Peaks | None:
    """None of a machine that is not known."""
    if machine.peak_flops is None or machine.peak_bandwidth is None:
        return None
    return Peaks(machine.peak_flops, machine.peak_bandwidth)


@dataclass(frozen=True, slots=True)
class Phase:
    """All steps of one kind between two readings; their rates are over the seconds that they took."""

    steps: int
    seconds: float
    work: StepWork

    @property
    def flops_s(self) -> float:
        return self.work.flops / self.seconds if self.seconds else 0.0

    @property
    def read_s(self) -> float:
        return self.work.read_bytes / self.seconds if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        return intensity(self.work) if self.work.read_bytes else 0.0

    def mfu(self, peaks: Peaks) -> float:
        return mfu(self.work, self.seconds, peaks) if self.seconds else 0.0

    def mbu(self, peaks: Peaks) -> float:
        return mbu(self.work, self.seconds, peaks) if self.seconds else 0.0


def phases_between(before: Reading, after: Reading) -> dict[str, Phase]:
    """By kind of step; kinds that did not happen are left out."""
    return {
        kind: Phase(
            steps=n - before.steps.get(kind, 0),
            seconds=after.step_seconds[kind] - before.step_seconds.get(kind, 0.0),
            work=_work_until(after, kind) - _work_until(before, kind),
        )
        for kind, n in after.steps.items()
        if n > before.steps.get(kind, 0)
    }


def _work_until(reading: Reading, kind: str) -> StepWork:
    return StepWork(flops=int(reading.flops.get(kind, 0)), read_bytes=int(reading.read_bytes.get(kind, 0)))


@dataclass(frozen=True, slots=True)
class Window:
    """Everything between two readings; its rates are over the time between them, idle time included."""

    seconds: float
    phases: dict[str, Phase]
    output_tokens: int

    @property
    def whole(self) -> Phase:
        """All kinds together."""
        phases = self.phases.values()
        work = sum((phase.work for phase in phases), StepWork())
        return Phase(sum(phase.steps for phase in phases), self.seconds, work)

    @property
    def output_s(self) -> float:
        return self.output_tokens / self.seconds if self.seconds else 0.0


def window_between(before: Reading, after: Reading) -> Window:
    return Window(after.at_s - before.at_s, phases_between(before, after), after.output_tokens - before.output_tokens)


class Outcome:
    """One point of a run, looked at."""

    def __init__(self, point: PointRecord) -> None:
        self.point = point
        self.setup = point.setup
        self.served = [request for request in point.requests if request.outcome == "ok"]
        firsts = ((request.first_s, request.sent_s) for request in self.served)
        self._ttft = sorted(first_s - sent_s for first_s, sent_s in firsts if first_s is not None)

    def ttft_at(self, share: float) -> float:
        """From the moment that a request was due to its first token."""
        return percentile(self._ttft, share)

    @property
    def mean_ttft(self) -> float:
        return mean(self._ttft)

    @property
    def mean_queue(self) -> float:
        return mean([request.queue_s for request in self.served if request.queue_s is not None])

    def gap_at(self, share: float) -> float:
        """The smallest gap between two tokens that `share` of them do not exceed; 0 without gaps."""
        rank = math.ceil(share * sum(n for _, n in self.point.gaps))
        for seconds, n in self.point.gaps:
            rank -= n
            if rank <= 0:
                return seconds
        return 0.0

    @property
    def output_s(self) -> float:
        """Output tokens a second of the requests that were served, as `total_s`."""
        return sum(request.n_output for request in self.served) / self.point.seconds

    @property
    def total_s(self) -> float:
        """Prompt and output tokens a second."""
        return sum(request.n_prompt + request.n_output for request in self.served) / self.point.seconds

    @property
    def kv_peak(self) -> float | None:
        """The largest share of the pool in use, of an engine that tells."""
        return self.point.readings[-1].kv_peak if self.point.readings else None

    @property
    def window(self) -> Window:
        """The whole of it, by the engine's counters."""
        return window_between(self.point.readings[0], self.point.readings[-1])

    def windows(self) -> Iterable[Window]:
        """Between neighbouring readings."""
        return (window_between(*pair) for pair in pairwise(self.point.readings))

    def reading_at(self, seconds: float) -> Reading:
        """The last one until then."""
        return next(reading for reading in reversed(self.point.readings) if reading.at_s <= seconds)
