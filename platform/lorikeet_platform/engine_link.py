"""The engine for threads: a client on an event loop of its own, behind calls that wait.

A worker's jobs run in threads and know no event loop. The loop, its thread and the connection begin with the first
call; each call raises the engine's errors, `EngineUnavailable` when no engine answers within a few seconds.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from lorikeet_engine.client import EngineClient, EngineInfo, GenerationRequest, RequestCounts, SamplingParams
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_platform.ids import new_id

CONNECT_S: Final = 3.0
WARM_S: Final = 60.0
ANSWER_S: Final = 30.0
CLOSE_S: Final = 1.0

Question = tuple[str | None, tuple[int, ...]]  # an adapter's digest or None for the base model, and a prompt

T = TypeVar("T")


class EngineLink:
    """A synchronous face of an `EngineClient`, for any number of threads.

    Args:
        connect: makes the client; called once, at the first use.
    """

    def __init__(self, connect: Callable[[], EngineClient]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: EngineClient | None = None
        self._calls: set[Future[Any]] = set()
        self._is_closed = False

    def info(self) -> EngineInfo:
        """What the engine says of itself, and the proof that it is there."""
        return self._run(self._info)

    def adapter_room(self) -> int:
        """Bytes of the largest adapter that the engine can load."""
        return self._run(self._adapter_room)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._started().tokenizer.encode(text)

    def warm(self, tenant: str, digest: str) -> None:
        """Have the engine load the adapter, and serve it again if it was retired."""

        async def warm(client: EngineClient) -> None:
            await client.warm_adapter(tenant, digest, WARM_S)

        self._run(warm, WARM_S + CONNECT_S)

    def retire(self, tenant: str, digest: str, *, force: bool = False) -> None:
        """Have the engine start nothing new on the adapter; with `force` end what runs on it."""

        async def retire(client: EngineClient) -> None:
            await client.retire_adapter(tenant, digest, force=force)

        self._run(retire)

    def running_on(self, tenant: str, digest: str) -> int:
        """Requests that run on the adapter or wait for it."""

        async def running(client: EngineClient) -> int:
            adapter = await client.adapter(tenant, digest)
            return adapter.requests + adapter.waiting if adapter else 0

        return self._run(running)

    def counts(self, request_ids: Sequence[str] = ()) -> Sequence[RequestCounts]:
        """What these requests have used, those the engine knows; without ids, every ended one that nobody claims."""

        async def counts(client: EngineClient) -> Sequence[RequestCounts]:
            return await client.counts(request_ids)

        return self._run(counts)

    def settled(self, request_ids: Sequence[str]) -> None:
        """Tell the engine that the use of these requests is on record."""

        async def settled(client: EngineClient) -> None:
            await client.settled(request_ids)

        self._run(settled)

    def answers(self, tenant: str, questions: Sequence[Question], n_tokens: int) -> list[tuple[int, ...]]:
        """The greedy tokens that answer each of the questions, all of them asked at once."""

        async def ask(client: EngineClient) -> list[tuple[int, ...]]:
            asked = [asyncio.create_task(_answer(client, tenant, question, n_tokens)) for question in questions]
            try:
                async with asyncio.timeout(ANSWER_S):
                    return [await task for task in asked]
            finally:
                for task in asked:
                    task.cancel()
                await asyncio.gather(*asked, return_exceptions=True)

        return self._run(ask, ANSWER_S + CONNECT_S)

    def close(self) -> None:
        """End the connection and the loop; calls that still wait end with `EngineUnavailable`."""
        with self._lock:
            self._is_closed = True
            loop, thread, client = self._loop, self._thread, self._client
            self._client = None
            calls = list(self._calls)
        if loop is None or thread is None or client is None:
            return
        for call in calls:
            call.cancel()
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end(client), loop).result(CLOSE_S)
        _stop(loop, thread)

    async def _info(self, client: EngineClient) -> EngineInfo:
        return client.info

    async def _adapter_room(self, client: EngineClient) -> int:
        stats = await client.stats()
        return min(stats.arena.capacity, stats.host.capacity)

    def _run(self, work: Callable[[EngineClient], Coroutine[Any, Any, T]], timeout_s: float = 2 * CONNECT_S) -> T:
        client = self._started()

        async def when_ready() -> T:
            await client.wait_ready(CONNECT_S)
            return await work(client)

        future = self._submit(when_ready)
        try:
            return future.result(timeout_s + CONNECT_S)
        except TimeoutError:
            raise EngineUnavailable("the engine did not answer in time") from None
        except CancelledError:
            raise _closed() from None
        finally:
            future.cancel()
            self._calls.discard(future)

    def _submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Under the lock, so that `close` either ends the call or is seen here: a loop that ended answers nobody."""
        with self._lock:
            if self._is_closed or self._loop is None:
                raise _closed()
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
            self._calls.add(future)
            return future

    def _started(self) -> EngineClient:
        with self._lock:
            if self._is_closed:
                raise _closed()
            if self._client is None:
                client = self._connect()
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=(loop,), name="engine-link", daemon=True)
                thread.start()
                try:
                    asyncio.run_coroutine_threadsafe(client.start(), loop).result(CONNECT_S)
                except BaseException as error:
                    with suppress(Exception):  # what there is of it
                        asyncio.run_coroutine_threadsafe(_end(client), loop).result(CLOSE_S)
                    _stop(loop, thread)
                    if isinstance(error, TimeoutError):
                        raise EngineUnavailable("the connection to the engine did not begin in time") from None
                    raise
                self._loop, self._thread, self._client = loop, thread, client
            return self._client


def _closed() -> EngineUnavailable:
    return EngineUnavailable("this worker is shutting down")


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(CLOSE_S)


async def _answer(client: EngineClient, tenant: str, question: Question, n_tokens: int) -> tuple[int, ...]:
    digest, prompt = question
    generation = await client.generate(
        GenerationRequest(
            request_id=new_id("req"),
            tenant=tenant,
            prompt=prompt,
            max_tokens=n_tokens,
            sampling=SamplingParams(),
            adapter_digest=digest,
            cache_salt=secrets.token_bytes(16),  # nothing of an earlier answer is used again
        )
    )
    try:
        async for _ in generation:
            pass
        return generation.tokens()
    finally:
        await generation.close()


async def _end(client: EngineClient) -> None:
    await client.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)  # cancelled by `close`


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
