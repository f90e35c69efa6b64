"""What runs beside the tenant application, from before its first request until after its last.

Begun in this order, ended in the reverse: hearing of what other processes change, traces, presence, the times of keys'
last use, watching the engine, settling. Whatever serves requests may count on all of it; a server ends its connections
before it ends its application, so nothing is admitted any more when the first of these stops, and what this gateway
admitted is settled before it is gone from the others' sight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import Notice, NoticeBoard
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.fleet import GatewayPresence
from lorikeet_platform.inference.service import InferenceService
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.telemetry.tracing.tracer import Tracer

log = logging.getLogger(__name__)

FLUSH_EVERY_S: Final = 60.0
LAG_EVERY_S: Final = 0.5


@asynccontextmanager
async def companions(context: PlatformContext, inference: InferenceService) -> AsyncIterator[None]:
    """All of them, for the length of the block."""
    async with (
        _heard(context.notices),
        _traced(context.tracer),
        _beside(_watch_lag(context.metrics)),
        _present(context.presence),
        _last_use_written(context.authenticator),
        _beside(context.watch.run()),
        _settled(inference),
    ):
        yield


def end_what_runs(inference: InferenceService, notice: Notice) -> None:
    """A listener of the notice board: what is being answered for a revoked key, or a suspended tenant, ends."""
    if notice.reason != "changed":
        inference.end_running(notice.tenant_id, notice.key_id, notice.reason)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """`work` runs for the length of the block, and has ended when it is over."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch_lag(metrics: GatewayMetrics) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY_S
        await asyncio.sleep(LAG_EVERY_S)
        metrics.loop_lag_seconds.observe(max(0.0, loop.time() - due))


@asynccontextmanager
async def _traced(tracer: Tracer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await asyncio.to_thread(tracer.close)


@asynccontextmanager
async def _present(presence: GatewayPresence) -> AsyncIterator[None]:
    await asyncio.to_thread(presence.start)
    try:
        yield
    finally:
        await asyncio.to_thread(presence.stop)


@asynccontextmanager
async def _heard(notices: NoticeBoard) -> AsyncIterator[None]:
    notices.start()
    try:
        yield
    finally:
        await asyncio.to_thread(notices.stop)


@asynccontextmanager
async def _settled(inference: InferenceService) -> AsyncIterator[None]:
    """A server that has time to give drains it before; this is for what came after, and for one that has none."""
    try:
        yield
    finally:
        await inference.drain(0)
        await inference.close()


@asynccontextmanager
async def _last_use_written(authenticator: Authenticator) -> AsyncIterator[None]:
    try:
        async with _beside(_flush_last_used(authenticator)):
            yield
    finally:
        await asyncio.to_thread(authenticator.flush_last_used)


async def _flush_last_used(authenticator: Authenticator) -> None:
    while True:
        await asyncio.sleep(FLUSH_EVERY_S)
        try:
            await asyncio.to_thread(authenticator.flush_last_used)
        except Exception:
            log.exception("times of last use were not written")
