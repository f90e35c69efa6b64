"""Many callers at once, each in a thread that starts when all are there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class AtOnce(Generic[T]):
    """`futures` in the order of the callers; leave the block to wait for all of them."""

    def __init__(self, n: int, work: Callable[[int], T]) -> None:
        self._pool = ThreadPoolExecutor(n)
        start = threading.Barrier(n)

        def run(index: int) -> T:
            start.wait()
            return work(index)

        self.futures: list[Future[T]] = [self._pool.submit(run, index) for index in range(n)]

    @property
    def n_done(self) -> int:
        return sum(future.done() for future in self.futures)

    def results(self) -> list[T]:
        """Waits for all."""
        results = [future.result() for future in self.futures]
        self._pool.shutdown()
        return results


def at_once(n: int, work: Callable[[int], T]) -> list[T]:
    return AtOnce(n, work).results()
