"""Settling apart from the requests: a caller that goes away never takes its own bill along.

Settlements wait in one bounded queue and are tried until they are on record, or until the gateway ends. What finds no
room, or no end in time, is not lost: its record stays open, and the engine, which was not told that it is settled,
tells somebody else what it used.

What is on record is told to the engine, which forgets it then; so what it has cost is asked for and written down
first. Whatever comes between, in the engine or the database, is tried some more; then the engine is not told, and
tells somebody else. A bill never waits for a cost.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from lorikeet_engine.client import RequestCounts
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.usage.ledger import Settlement, Verdict

log = structlog.get_logger(__name__)

MAX_WAITING: Final = 10_000
AT_ONCE: Final = 4
AGAIN_AFTER_S: Final = (0.2, 1.0, 5.0)  # the last one again and again
# A caller sees its own use as soon as its answer has ended, unless the database is slow.
FIRST_TRY_S: Final = 1.0
TELL_AFTER_S: Final = 0.2
TELL_AT_ONCE: Final = 500
TELL_TRIES: Final = 10  # of one request's cost
LAST_WORD_S: Final = 2.0  # to tell the engine at the end
IN_TROUBLE: Final = (OperationalError, InterfaceError, PoolTimeout)  # of the database, not of the settlement


class Ledger(Protocol):
    """Writes a settlement down; `UsageService` is one. Called in threads."""

    def settle(self, settlement: Settlement) -> Verdict: ...
    def record_costs(self, found: Sequence[RequestCounts]) -> None: ...
    def observe_lag(self, seconds: float) -> None: ...


class ToldEngine(Protocol):
    """Says what requests have cost, and hears what it need not remember; `EngineClient` is one."""

    async def counts(self, request_ids: Sequence[str]) -> Sequence[RequestCounts]: ...
    async def settled(self, request_ids: Sequence[str]) -> None: ...


@dataclass(eq=False)
class _Waiting:
    settlement: Settlement
    since: float = field(default_factory=time.monotonic)
    tried: asyncio.Event = field(default_factory=asyncio.Event)


class Settler:
    """One gateway's settlements, on its event loop. Nothing runs while nothing waits; `drain` and `close` it."""

    def __init__(self, ledger: Ledger, engine: ToldEngine) -> None:
        self._ledger, self._engine = ledger, engine
        self._queue: deque[_Waiting] = deque()
        self._in_hand: set[_Waiting] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._untold: dict[str, int] = {}  # by request, how often it was tried
        self._teller: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="settle")
        self._is_closed = False

    @property
    def n_waiting(self) -> int:
        return len(self._queue) + len(self._in_hand)

    async def settle(self, settlement: Settlement) -> None:
        """Take it over; returns when it was tried once, or after a second. Cancelling the caller changes nothing."""
        waiting = self.take_over(settlement)
        try:
            await asyncio.wait_for(waiting.tried.wait(), FIRST_TRY_S)
        except TimeoutError:
            pass

    def take_over(self, settlement: Settlement) -> _Waiting:
        """See to it without waiting."""
        waiting = _Waiting(settlement)
        if self._is_closed or self.n_waiting >= MAX_WAITING:
            _log_open("no room to settle usage", settlement)
            waiting.tried.set()
            return waiting
        self._queue.append(waiting)
        self._see_to_it()
        return waiting

    async def drain(self, timeout_s: float) -> None:
        """Wait until all is settled and the engine told; what is not in time stays open, its figures in the log.

        It may be called again: what comes later is taken over as before, until `close`.
        """
        if self._workers:
            await asyncio.wait(set(self._workers), timeout=timeout_s)
        late, stopped = [*self._in_hand, *self._queue], set(self._workers)
        self._queue.clear()
        for waiting in late:
            _log_open("usage not settled", waiting.settlement)
        for worker in stopped:
            worker.cancel()
        if stopped:
            await asyncio.wait(stopped)
        if self._teller is not None:
            self._teller.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_S):
                await self._tell_now()

    def close(self) -> None:
        """After the last drain: what comes now is only logged."""
        self._is_closed = True
        self._threads.shutdown(wait=False)

    def _see_to_it(self) -> None:
        """One worker more, as long as there is room for one."""
        if len(self._workers) < AT_ONCE:
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        try:
            while self._queue:
                waiting = self._queue.popleft()
                self._in_hand.add(waiting)
                try:
                    await self._settle(waiting)
                finally:
                    self._in_hand.discard(waiting)
                    waiting.tried.set()
        finally:
            # Here, not when the loop hears of it: what is queued in between would count on a worker that has ended.
            self._workers.discard(me)
            if self._queue:
                self._see_to_it()

    async def _settle(self, waiting: _Waiting) -> None:
        """Once or as often as it takes; a settlement that the database will never have is given up."""
        loop, n_tried = asyncio.get_running_loop(), 0
        while True:
            try:
                await loop.run_in_executor(self._threads, self._ledger.settle, waiting.settlement)
                break
            except Exception as error:
                if not isinstance(error, IN_TROUBLE):
                    _log_open("usage cannot be settled", waiting.settlement, error=type(error).__name__)
                    return
                if n_tried == 0:
                    log.warning("usage is settled later", error=type(error).__name__)
            waiting.tried.set()
            await asyncio.sleep(AGAIN_AFTER_S[min(n_tried, len(AGAIN_AFTER_S) - 1)])
            n_tried += 1
        self._ledger.observe_lag(time.monotonic() - waiting.since)
        self._untold[waiting.settlement.request_id] = 0
        if self._teller is None or self._teller.done():
            self._teller = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._untold:
            await asyncio.sleep(TELL_AFTER_S)
            await self._tell_now()

    async def _tell_now(self) -> None:
        """One try with all of them; what is not done by the last try is left to whoever asks the engine."""
        waiting = list(self._untold)
        for ids in (waiting[start : start + TELL_AT_ONCE] for start in range(0, len(waiting), TELL_AT_ONCE)):
            if done := await self._record_costs(ids):
                await self._engine.settled(done)
            for request_id in done:
                self._untold.pop(request_id, None)
        for request_id in waiting:
            if request_id in self._untold:
                self._untold[request_id] += 1
                if self._untold[request_id] >= TELL_TRIES:
                    del self._untold[request_id]

    async def _record_costs(self, ids: Sequence[str]) -> list[str]:
        """Those of which everything is on record that will be; an aborted one may run for a step more."""
        try:
            found = await self._engine.counts(ids)
            if costs := [each for each in found if each.cost is not None]:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._threads, self._ledger.record_costs, costs)
        except (EngineUnavailable, *IN_TROUBLE) as error:
            log.warning("costs are recorded later", n_requests=len(ids), error=type(error).__name__)
            return []
        except Exception as error:
            log.error("costs cannot be recorded", n_requests=len(ids), error=type(error).__name__)
            return list(ids)
        running = {each.request_id for each in found if each.state == "running"}
        return [each for each in ids if each not in running]


def _log_open(event: str, settlement: Settlement, **details: str) -> None:
    log.error(
        event,
        request_id=settlement.request_id,
        outcome=settlement.outcome,
        prompt_tokens=settlement.prompt_tokens,
        completion_tokens=settlement.completion_tokens,
        cached_tokens=settlement.cached_tokens,
        **details,
    )
