"""Samples an engine's figures beside the gateway's requests, and remembers the last minutes of them.

What cannot be read is a gap: while no engine answers there is no window, and an engine that started anew begins a new
one. Nothing here raises into the gateway, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from lorikeet_engine.client import EngineClient
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_engine.stats import EngineDesign, EngineStats, PromptHeads, StepSample
from lorikeet_platform.clock import SECOND, Clock, now_us
from lorikeet_platform.engine_watch.window import Reading, Window

SAMPLE_EVERY_S: Final = 5.0
KEPT_S: Final = 300.0
KEPT_STEPS: Final = 10_000  # a fast engine makes more within `KEPT_S`
PROMPTS_EVERY: Final = 6  # samples; comparing prompts is not free for the engine
FORWARD: Final = float("-inf")  # every step that the engine remembers

log = logging.getLogger(__name__)

Listener = Callable[[], Awaitable[None]]


class EngineWatch:
    """One engine under observation. `run` samples until it is cancelled.

    Attributes:
        design: what the engine was started with, None until it has answered once.
        prompts: how alike the newest prompts are, as last told.
        has_answered: whether any engine ever did.
        n_engines: how many processes have answered, one after the other.
        is_away: whether the last sample failed; `away_since` is when that began, unix seconds.
    """

    def __init__(self, client: EngineClient, clock: Clock = now_us, *, every_s: float = SAMPLE_EVERY_S) -> None:
        self.design: EngineDesign | None = None
        self.prompts: Sequence[PromptHeads] = ()
        self.has_answered = self.is_away = False
        self.n_engines = 0
        self.away_since: float | None = None
        self._client, self._clock, self._every_s = client, clock, every_s
        self._readings: deque[Reading] = deque(maxlen=round(KEPT_S / every_s) + 1)
        self._steps: deque[StepSample] = deque(maxlen=KEPT_STEPS)
        self._listeners: list[Listener] = []
        self._n_samples = 0

    def subscribe(self, listener: Listener) -> None:
        """`listener` is awaited after each sample, also one that failed."""
        self._listeners.append(listener)

    def window(self, seconds: float = KEPT_S) -> Window | None:
        """The newest so many seconds, as far as they are remembered; None while the engine is away or two are too few.

        From the youngest reading that is at least so old, so that a window may be longer than `seconds` by one sample.
        """
        if self.is_away or len(self._readings) < 2:
            return None
        readings = list(self._readings)
        last = readings[-1]
        limit_s = last.stats.uptime_s - seconds
        older = [i for i, reading in enumerate(readings[:-1]) if reading.stats.uptime_s <= limit_s]
        readings = readings[older[-1] if older else 0 :]
        first = readings[0]
        length_s = last.stats.uptime_s - first.stats.uptime_s
        if length_s <= 0:
            return None
        since_s = last.engine_s - length_s
        steps = [step for step in self._steps if step.end_s > since_s]
        return Window(first.stats, last.stats, length_s, steps, readings)

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.sample()
            await asyncio.sleep(self._every_s)

    async def sample(self) -> None:
        """Read the engine once, and tell the listeners."""
        try:
            await self._read()
        except EngineUnavailable:
            self._lose()
        except Exception:
            log.exception("the engine's figures could not be read")
            self._lose()
        for listener in self._listeners:
            try:
                await listener()
            except Exception:
                log.exception("what looks at the engine's figures failed")

    async def _read(self) -> None:
        client = self._client
        stats, at = await client.stats(names_adapters=True), self._clock() / SECOND
        if self._readings and _is_another_process(self._readings[-1], stats, at):
            self._forget()
        known_s = self._steps[-1].end_s if self._steps else FORWARD
        steps = await client.steps(known_s)
        if self.design is None:
            self.design = await client.design()
        if self._n_samples % PROMPTS_EVERY == 0:
            self.prompts = await client.prompts()
        self._n_samples += 1
        if self._readings:
            self._readings.append(_slim(self._readings.pop()))
        self._steps.extend(steps.samples)
        self._readings.append(Reading(at, steps.now_s, stats))
        self.has_answered, self.is_away, self.away_since = True, False, None
        self.n_engines = max(self.n_engines, 1)

    def _lose(self) -> None:
        if not self.is_away:
            self.is_away, self.away_since = True, self._clock() / SECOND

    def _forget(self) -> None:
        """Another process answers: nothing of the one before can be compared with it."""
        self._readings.clear()
        self._steps.clear()
        self.n_engines += 1
        self.design, self.prompts, self._n_samples = None, (), 0


def _is_another_process(before: Reading, after: EngineStats, at: float) -> bool:
    """Whether it started after the reading before, or its totals went back."""
    known = before.stats
    return after.uptime_s < max(known.uptime_s, at - before.at) or after.steps_total < known.steps_total


def _slim(reading: Reading) -> Reading:
    """Without what grows with the number of adapters: only the newest reading is asked for that."""
    return replace(reading, stats=msgspec.structs.replace(reading.stats, adapters=[]))
