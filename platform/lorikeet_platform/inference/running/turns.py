"""Threads for one kind of work, of which no tenant has more than its part.

A tenant whose work is slow, because it waits for a row of its own or has much to be read, waits for itself: others find
threads that are free. Work that waits for its turn holds no thread.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Turns:
    """One tenant's; only while it has any."""

    n_taken: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class FairThreads:
    """For one event loop; `close` it.

    Args:
        n_of_tenant: how many of the `n_threads` one tenant's work may have at once.
    """

    def __init__(self, name: str, *, n_threads: int, n_of_tenant: int) -> None:
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self._n_of_tenant = n_of_tenant
        self._tenants: dict[str, _Turns] = {}

    async def run(self, tenant_id: str, work: Callable[[], T]) -> T:
        """Wait for a turn, then for the work. Work that has begun goes on when the caller is cancelled."""
        return await asyncio.shield(await self.start(tenant_id, work))

    async def start(self, tenant_id: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Wait for a turn and begin. Who is cancelled has begun nothing; the result is not to be cancelled."""
        turns = self._tenants.setdefault(tenant_id, _Turns())
        if turns.n_taken < self._n_of_tenant:
            turns.n_taken += 1
        else:
            await self._wait_for_turn(tenant_id, turns)
        try:
            begun = asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, work)
        except BaseException:
            self._end_turn(tenant_id, turns)
            raise
        begun.add_done_callback(lambda _: self._end_turn(tenant_id, turns))
        return begun

    def close(self) -> None:
        """Nothing is begun any more; raises RuntimeError for what tries."""
        self._threads.shutdown(wait=False)

    async def _wait_for_turn(self, tenant_id: str, turns: _Turns) -> None:
        turn = asyncio.get_running_loop().create_future()
        turns.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came just now, for nobody
                self._end_turn(tenant_id, turns)
            raise

    def _end_turn(self, tenant_id: str, turns: _Turns) -> None:
        """A turn that ends is the next one's, if anybody waits."""
        while turns.waiting:
            turn = turns.waiting.popleft()
            if not turn.done():  # its caller is still there
                turn.set_result(None)
                return
        turns.n_taken -= 1
        if not turns.n_taken:
            del self._tenants[tenant_id]


async def to_its_end(work: Awaitable[T]) -> T:
    """Await `work` even through cancellations of the calling task; those are raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()
