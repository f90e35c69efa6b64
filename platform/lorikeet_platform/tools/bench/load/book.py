"""Collects what came of the requests: their records, the gaps between pieces, and how the generator itself did."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import Final

from lorikeet_engine.experiments.record import Generator, RequestRecord
from lorikeet_engine.simulation.report.samples import BINS_PER_E, Gaps, percentile
from lorikeet_platform.tools.bench.load.pauses import Paused
from lorikeet_platform.tools.bench.load.sender import Answer

LOOK_EVERY_S: Final = 0.01


class Book:
    """Of one point."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []
        self.ended_s = 0.0
        self.messages: Counter[str] = Counter()
        self._gaps = Gaps()
        self._late: list[float] = []
        self._n_pieces = self._n_tokens = self._n_differing = self._n_without_usage = 0

    def add(self, answer: Answer) -> None:
        self.requests.append(answer.record())
        self.ended_s = max(self.ended_s, answer.ended_s)
        self._late.append(answer.sent_s - answer.ask.at)
        if answer.outcome != "ok":
            self.messages[f"{answer.code}: {answer.message}" if answer.message else answer.code or answer.outcome] += 1
            return
        for before, after in zip(answer.pieces_s, answer.pieces_s[1:], strict=False):
            self._gaps.add(after - before)
        if not answer.has_counts:
            self._n_without_usage += 1
            return
        self._n_pieces += len(answer.pieces_s)
        self._n_tokens += answer.n_output
        self._n_differing += len(answer.pieces_s) != answer.n_output

    def gaps(self) -> list[tuple[float, int]]:
        """(seconds, how often), in order."""
        return [(math.exp(bin_ / BINS_PER_E), n) for bin_, n in sorted(self._gaps.bins.items())]

    def generator(self, lag: LoopLag, paused: Paused) -> Generator:
        late = sorted(self._late)
        return Generator(
            late_p99_s=percentile(late, 0.99),
            late_max_s=percentile(late, 1.0),
            lag_p99_s=lag.at(0.99),
            lag_max_s=lag.at(1.0),
            cpu_share=lag.cpu_share,
            n_pieces=self._n_pieces,
            n_tokens=self._n_tokens,
            n_differing=self._n_differing,
            n_without_usage=self._n_without_usage,
            n_pauses=paused.n,
            paused_s=paused.seconds,
        )


class LoopLag:
    """How late the event loop comes to what is ready, looked at a hundred times a second."""

    def __init__(self) -> None:
        self._lags: Counter[int] = Counter()  # in hundredths of a millisecond
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()
        self.cpu_share = 0.0

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(LOOK_EVERY_S)
            now = time.monotonic()
            self._lags[max(0, round((now - before - LOOK_EVERY_S) * 1e5))] += 1
            self.cpu_share = (time.process_time() - self._cpu_s) / (now - self._began_s)

    def at(self, share: float) -> float:
        rank = math.ceil(share * self._lags.total())
        for lag, n in sorted(self._lags.items()):
            rank -= n
            if rank <= 0:
                return lag / 1e5
        return 0.0
