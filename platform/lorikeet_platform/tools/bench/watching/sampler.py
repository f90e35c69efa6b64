"""Reads a server's counters before the first request, once a second, and after the last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Final

import aiohttp

from lorikeet_engine.experiments.record import Reading
from lorikeet_platform.tools.bench.load.address import shown
from lorikeet_platform.tools.bench.watching.dialects import DIALECTS, WANTED, Dialect, dialect_of
from lorikeet_platform.tools.bench.watching.exposition import Samples, read_samples

EVERY_S: Final = 1.0
LOOK_AGAIN_S, SETTLED_WITHIN_S = 0.1, 5.0
TIMEOUT_S: Final = 10.0
OK: Final = 200


class MetricsUnreadable(Exception):
    """There are no counters at that address that anything is known about."""


class Sampler:
    """Of one point. `readings` are as the record keeps them; `n_missed` of them could not be read.

    Servers that take their figures now and then say when; a reading's time is that moment, and none is kept twice.
    """

    def __init__(self, url: str, clock: Callable[[], float], session: aiohttp.ClientSession) -> None:
        self._url, self._clock, self._session = url, clock, session
        self._shown = shown(url)
        self._dialect: Dialect | None = None
        self._began_at = self._taken_at = 0.0
        self._readings: list[Reading] = []
        self.n_missed = 0

    @property
    def make(self) -> str:
        """Whose server it is."""
        return self._dialect.make if self._dialect else ""

    async def begin(self) -> None:
        """The reading before the first request. Raises MetricsUnreadable."""
        samples = await self._fetch()
        self._dialect = dialect_of(samples)
        if self._dialect is None:
            makes = ", ".join(dialect.make for dialect in DIALECTS)
            raise MetricsUnreadable(f"{self._shown} has no counters of a server that is known here: {makes}")
        samples = await self._settled(samples)
        self._began_at = self._taken_at = samples.total(self._dialect.taken_at)
        self._readings.append(self._dialect.read(self._whole(samples), 0.0))

    async def watch(self) -> None:
        """Until it is cancelled. A reading that fails is left out: a server under load may be slow to tell."""
        for tick in count(1):
            await asyncio.sleep(tick * EVERY_S - self._clock())
            try:
                self._keep(await self._fetch())
            except Exception:
                self.n_missed += 1

    async def end(self) -> None:
        """The reading after the last request. Without it the readings end sooner; the requests count all the same."""
        try:
            self._keep(await self._settled(await self._fetch()))
        except Exception:
            self.n_missed += 1

    def readings(self) -> list[Reading]:
        """With the peak of the point: an engine's own counts from its start, and may be older than the point.

        The engine's own is newer than the point's beginning when it has risen since. A single reading says nothing of
        the time between two, and is none.
        """
        if len(self._readings) < 2:
            return []
        before = self._readings[0].kv_peak or 0.0
        seen, told = 0.0, []
        for reading in self._readings:
            if reading.kv_used is None or reading.kv_peak is None:
                return self._readings
            seen = max(seen, reading.kv_used, reading.kv_peak if reading.kv_peak > before else 0.0)
            told.append(replace(reading, kv_peak=seen))
        return told

    async def _settled(self, samples: Samples) -> Samples:
        """Figures that were taken after this was asked for, where the server says when."""
        assert self._dialect is not None, "begin comes first"
        taken_at, deadline = self._dialect.taken_at, time.monotonic() + SETTLED_WITHIN_S
        first = samples.total(taken_at)
        while taken_at and samples.total(taken_at) <= first and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_AGAIN_S)
            samples = await self._fetch()
        return samples

    def _whole(self, samples: Samples) -> Samples:
        """Raises MetricsUnreadable for figures that would look as if everything began anew, or are no numbers."""
        assert self._dialect is not None, "begin comes first"
        if self._dialect.mark not in samples:
            raise MetricsUnreadable(f"{self._shown} tells no {self._dialect.mark} any more")
        if name := samples.not_finite():
            raise MetricsUnreadable(f"{self._shown} tells no number as its {name}")
        return samples

    def _keep(self, samples: Samples) -> None:
        assert self._dialect is not None, "begin comes first"
        self._whole(samples)
        if not self._dialect.taken_at:
            self._readings.append(self._dialect.read(samples, self._clock()))
        elif (taken_at := samples.total(self._dialect.taken_at)) > self._taken_at:
            self._taken_at = taken_at
            self._readings.append(self._dialect.read(samples, taken_at - self._began_at))

    async def _fetch(self) -> Samples:
        try:
            async with self._session.get(self._url, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as response:
                if response.status != OK:
                    raise MetricsUnreadable(f"{self._shown} answers with status {response.status}")
                return read_samples(await response.text(), WANTED)
        except aiohttp.InvalidURL:
            raise MetricsUnreadable(f"{self._shown} is no address of metrics") from None
        except (aiohttp.ClientError, OSError, TimeoutError, UnicodeDecodeError) as error:
            raise MetricsUnreadable(f"cannot read {self._shown}: {error or type(error).__name__}") from None
