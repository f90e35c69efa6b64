"""Runs a load against a target: warm-up, requests as they come due, the counters beside them, and the record of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import uvloop

from lorikeet_engine.experiments.record import PointRecord, SetupValue
from lorikeet_platform.tools.bench.load.book import Book, LoopLag
from lorikeet_platform.tools.bench.load.description import Load
from lorikeet_platform.tools.bench.load.sender import Answer, Sender, open_session
from lorikeet_platform.tools.bench.load.target import REFUSED_KEY, Target, TargetUnfit
from lorikeet_platform.tools.bench.load.traffic import Ask, Traffic, traffic_of, warm_up_asks
from lorikeet_platform.tools.bench.watching.sampler import Sampler

Told = Callable[[int, int], None]  # requests sent, requests ended
SERVED = ("ok", "aborted")  # who hangs up was not turned away
REFUSED_CODES = {*map(str, REFUSED_KEY), *(f"http_{status}" for status in REFUSED_KEY), "invalid_api_key"}


@dataclass(frozen=True, slots=True)
class Run:
    """A point, and what its record has no place for.

    Attributes:
        failures: how often the server said what, or went away how.
        make: whose counters were read; empty = none were.
        n_missed: readings of the counters that failed.
    """

    point: PointRecord
    failures: Counter[str] = field(default_factory=Counter)
    make: str = ""
    n_missed: int = 0


def run_point(
    target: Target, load: Load, *, setup: dict[str, SetupValue] | None = None, told: Told | None = None
) -> PointRecord:
    """One point of a sweep; see `run_load`."""
    return run_load(target, load, setup=setup, told=told).point


def run_load(
    target: Target, load: Load, *, setup: dict[str, SetupValue] | None = None, told: Told | None = None
) -> Run:
    """Blocks until the load has ended and all of its requests have; `told` hears how far it is.

    Raises:
        DescriptionError: a key or a trace of the load is not there.
        TargetUnfit: a warm-up request failed.
        MetricsUnreadable: the target's counters cannot be read.
    """
    return uvloop.run(_run(target, load, load.setup() if setup is None else setup, told))


async def _run(target: Target, load: Load, setup: dict[str, SetupValue], told: Told | None) -> Run:
    traffic = traffic_of(load, target)
    async with open_session() as session:
        await _warm_up(Sender(session, target, lambda: 0.0), warm_up_asks(load, target))
        began_s = time.monotonic()

        def clock() -> float:
            return time.monotonic() - began_s

        sampler = Sampler(target.metrics_url, clock, session) if target.metrics_url else None
        if sampler:
            await sampler.begin()
            began_s = time.monotonic()
        book, lag = Book(), LoopLag()
        watchers = [asyncio.create_task(lag.watch())]
        if sampler:
            watchers.append(asyncio.create_task(sampler.watch()))
        try:
            await Dispatch(traffic, Sender(session, target, clock), book, clock, told).run()
        finally:
            for watcher in watchers:
                watcher.cancel()
        if sampler:
            await sampler.end()
    point = PointRecord(
        setup=setup,
        seconds=book.ended_s,
        requests=book.requests,
        gaps=book.gaps(),
        readings=sampler.readings() if sampler else [],
        generator=book.generator(lag, traffic.paused),
    )
    return Run(point, book.messages, sampler.make if sampler else "", sampler.n_missed if sampler else 0)


async def _warm_up(sender: Sender, asks: list[Ask]) -> None:
    """One after another; what fails here would fail a thousand times."""
    for ask in asks:
        answer = await sender.send(ask)
        if answer.outcome not in SERVED:
            said = f"{answer.code}: {answer.message}" if answer.message else answer.code
            raise TargetUnfit(f"a request before the test failed: {said}", is_key=answer.code in REFUSED_CODES)


class Dispatch:
    """Sends every request when it is due, whatever became of those before it."""

    def __init__(
        self, traffic: Traffic, sender: Sender, book: Book, clock: Callable[[], float], told: Told | None
    ) -> None:
        self._traffic, self._sender, self._book, self._clock = traffic, sender, book, clock
        self._told = told
        self._running: set[asyncio.Task[None]] = set()
        self._n_sent = self._n_ended = 0
        self._something_ended = asyncio.Event()
        self._error: Exception | None = None

    async def run(self) -> None:
        """Until nothing is due any more and everything has ended; when it is cancelled, so are they.

        What went wrong in this program while a request was looked after comes out of here.
        """
        try:
            while True:
                if self._error:
                    raise self._error
                due_s = self._traffic.next_at()
                if due_s is None:
                    if self._n_ended == self._n_sent:
                        return
                    await self._wait(None)
                elif due_s > (now := self._clock()):
                    await self._wait(due_s - now)
                else:
                    self._start(self._traffic.take())
        finally:
            for task in self._running:
                task.cancel()

    async def _wait(self, seconds: float | None) -> None:
        """For the end of a request, which may make another one due sooner; at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._something_ended.wait()
        self._something_ended.clear()

    def _start(self, ask: Ask) -> None:
        self._n_sent += 1
        task = asyncio.create_task(self._send(ask))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        self._tell()

    async def _send(self, ask: Ask) -> None:
        try:
            self._enter(await self._sender.send(ask))
        except Exception as error:
            self._error = self._error or error
        self._n_ended += 1
        self._something_ended.set()
        self._tell()

    def _enter(self, answer: Answer) -> None:
        self._book.add(answer)
        is_served, retry_after_s = answer.outcome in SERVED, answer.retry_after_s
        self._traffic.on_ended(answer.ask, answer.ended_s, is_served=is_served, retry_after_s=retry_after_s)

    def _tell(self) -> None:
        if self._told:
            self._told(self._n_sent, self._n_ended)
