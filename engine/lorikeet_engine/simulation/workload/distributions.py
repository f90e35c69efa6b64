"""Lengths, gaps and popularity, drawn from a seeded source."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random
from typing import Literal

from lorikeet_engine.simulation.workload.strict_records import DescriptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How many tokens; every draw is clipped to `min … max`.

    Attributes:
        kind: "constant" (`value`), "uniform" (`min … max`), "exponential" (`mean`), "lognormal" (`mean`, `sigma` of the
            logarithm), or "mix" (`values`, each with its weight in `weights`).
    """

    kind: Literal["constant", "uniform", "exponential", "lognormal", "mix"] = "constant"
    value: int = 0
    mean: float = 0.0
    sigma: float = 1.0
    values: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    min: int = 1
    max: int = 1 << 20

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.mean, self.sigma, *self.weights))):
            raise DescriptionError(f"{self.kind} lengths need finite numbers")
        if not 1 <= self.min <= self.max:
            raise DescriptionError(f"lengths run from min {self.min} to max {self.max}; 1 <= min <= max")
        if self.kind == "constant" and self.value < 1:
            raise DescriptionError("constant lengths need a value of at least 1")
        if self.kind in ("exponential", "lognormal") and self.mean < 1:
            raise DescriptionError(f"{self.kind} lengths need a mean of at least 1")
        if self.kind == "mix" and (not self.values or len(self.values) != len(self.weights)):
            raise DescriptionError("mixed lengths need values, and as many weights")

    def draw(self, source: Random) -> int:
        match self.kind:
            case "constant":
                n = float(self.value)
            case "uniform":
                n = source.randint(self.min, self.max)
            case "exponential":
                n = source.expovariate(1 / self.mean)
            case "lognormal":
                n = source.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)
            case "mix":
                n = source.choices(self.values, self.weights)[0]
        return min(max(round(n), self.min), self.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests come.

    Attributes:
        kind: "poisson" (`rate` a second); "gamma" (`rate` a second, pauses of shape `burstiness`: 1 = poisson, less is
            burstier, more is steadier); "bursty" (`rate` on average, but only in bursts of about `burst_s` seconds at
            `factor` times that rate); "closed" (`concurrency` clients, each of which sends its next request `think_s`
            seconds after its last one ended, and `apart_s` after another client's at the least).
        start_s: when the first may come.
        stop_s: when the last may come; 0 = when the workload ends.
    """

    kind: Literal["poisson", "gamma", "bursty", "closed"] = "poisson"
    rate: float = 0.0
    burstiness: float = 1.0
    factor: float = 5.0
    burst_s: float = 10.0
    concurrency: int = 0
    think_s: float = 0.0
    apart_s: float = 0.0
    start_s: float = 0.0
    stop_s: float = 0.0

    def __post_init__(self) -> None:
        pauses = (self.think_s, self.apart_s, self.burst_s, self.start_s, self.stop_s)
        if not all(map(math.isfinite, (self.rate, self.burstiness, self.factor, *pauses))):
            raise DescriptionError(f"{self.kind} arrivals need finite numbers")
        if self.kind == "closed":
            if self.concurrency < 1 or min(self.think_s, self.apart_s) < 0:
                raise DescriptionError(
                    "closed arrivals need a concurrency of at least 1, no negative think_s or apart_s"
                )
        elif self.rate <= 0:
            raise DescriptionError(f"{self.kind} arrivals need a rate above 0")
        if self.burstiness <= 0:
            raise DescriptionError("burstiness must be above 0")
        if self.kind == "bursty" and (self.factor <= 1 or self.burst_s <= 0):
            raise DescriptionError("bursty arrivals need a factor above 1 and a burst_s above 0")

    def times(self, source: Random) -> Iterator[float]:
        """Without end; what is left out by `stop_s` or the workload's end is the caller's to cut."""
        match self.kind:
            case "poisson":
                yield from self._steady(partial(source.expovariate, self.rate))
            case "gamma":
                scale_s = 1 / (self.rate * self.burstiness)
                yield from self._steady(partial(source.gammavariate, self.burstiness, scale_s))
            case "bursty":
                yield from self._bursts(source)
            case "closed":
                raise ValueError("closed arrivals have no times of their own")

    def _steady(self, pause: Callable[[], float]) -> Iterator[float]:
        now = self.start_s
        while True:
            now += pause()
            yield now

    def _bursts(self, source: Random) -> Iterator[float]:
        begin = self.start_s
        pause_s = self.burst_s * (self.factor - 1)  # so that bursts fill 1/factor of the time
        while True:
            begin += source.expovariate(1 / pause_s)
            end = begin + source.expovariate(1 / self.burst_s)
            now = begin + source.expovariate(self.rate * self.factor)
            while now < end:
                yield now
                now += source.expovariate(self.rate * self.factor)
            begin = end


class Zipf:
    """Rank k of `n` is drawn with probability proportional to k^-exponent; 0 is the most popular."""

    def __init__(self, n: int, exponent: float) -> None:
        self._shares = list(accumulate((k + 1) ** -exponent for k in range(n)))

    def draw(self, source: Random) -> int:
        return bisect(self._shares, source.random() * self._shares[-1])
