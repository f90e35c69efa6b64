"""Threads in turns: no tenant has more than its part, and who waits for a turn holds nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from lorikeet_platform.inference.running.turns import FairThreads

REQUEST = ContextVar("REQUEST", default="")


class Work:
    """Ends when it may, and knows how much of it was under way at once."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.begun: list[str] = []
        self._lock, self._n, self.most = threading.Lock(), 0, 0

    def __call__(self, name: str) -> str:
        with self._lock:
            self.begun.append(name)
            self._n += 1
            self.most = max(self.most, self._n)
        assert self.may_end.wait(10)
        with self._lock:
            self._n -= 1
        return name


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    threads = FairThreads("test", n_threads=3, n_of_tenant=2)
    yield threads
    threads.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 10))


async def until(n: int, work: Work) -> None:
    while len(work.begun) < n:
        await asyncio.sleep(0.005)


def test_a_tenant_whose_work_hangs_has_its_part_of_the_threads_and_others_go_on(threads: FairThreads) -> None:
    async def scenario() -> None:
        work = Work()
        hanging = [asyncio.create_task(threads.run("hot", partial(work, f"{number}"))) for number in range(5)]
        await until(2, work)
        assert await threads.run("other", lambda: "done") == "done"
        assert len(work.begun) == 2
        work.may_end.set()
        assert await asyncio.gather(*hanging) == ["0", "1", "2", "3", "4"]
        assert (work.most, work.begun[2:]) == (2, ["2", "3", "4"])

    run(scenario())
    assert not threads._tenants


def test_who_leaves_while_waiting_has_begun_nothing_and_its_turn_is_the_next_ones(threads: FairThreads) -> None:
    async def scenario() -> None:
        work = Work()
        tasks = [asyncio.create_task(threads.start("hot", partial(work, f"{number}"))) for number in range(4)]
        await until(2, work)
        tasks[2].cancel()
        await asyncio.sleep(0)
        work.may_end.set()
        assert await (await tasks[3]) == "3"
        assert tasks[2].cancelled()
        assert work.begun == ["0", "1", "3"]

    run(scenario())
    assert not threads._tenants


def test_who_leaves_just_when_its_turn_has_come_hands_it_on(threads: FairThreads) -> None:
    async def scenario() -> None:
        work = Work()
        tasks = [asyncio.create_task(threads.start("hot", partial(work, f"{number}"))) for number in range(4)]
        await until(2, work)
        threads._end_turn("hot", threads._tenants["hot"])  # the turn of the third, who does not know yet
        threads._tenants["hot"].n_taken += 1
        tasks[2].cancel()
        work.may_end.set()
        assert await (await tasks[3]) == "3"
        assert "2" not in work.begun

    run(scenario())


def test_work_that_was_begun_keeps_its_turn_when_its_caller_leaves(threads: FairThreads) -> None:
    async def scenario() -> None:
        work = Work()
        first = [asyncio.create_task(threads.run("hot", partial(work, f"{number}"))) for number in range(2)]
        await until(2, work)
        for task in first:
            task.cancel()
        await asyncio.wait(first)
        later = asyncio.create_task(threads.run("hot", partial(work, "later")))
        await asyncio.sleep(0.02)
        assert "later" not in work.begun
        work.may_end.set()
        assert await later == "later"

    run(scenario())


def test_work_knows_whose_request_it_is_and_its_errors_are_its_callers(threads: FairThreads) -> None:
    async def scenario() -> None:
        REQUEST.set("req_1")
        assert await threads.run("any", REQUEST.get) == "req_1"
        with pytest.raises(ZeroDivisionError):
            await threads.run("any", lambda: 1 // 0)
        threads.close()
        with pytest.raises(RuntimeError):
            await threads.run("any", REQUEST.get)

    run(scenario())
    assert not threads._tenants
