"""What runs beside the tenant application, from before its first request until after its last.

Begun in this order, ended in the reverse: presence, then hearing of what other processes change, then the times of
keys' last use. Whatever serves requests may count on all of it; a server ends its connections before it ends its
application, so nothing is admitted any more when the first of these stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from lorikeet_platform.auth.api_keys import Authenticator
from lorikeet_platform.auth.notices import NoticeBoard
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.fleet import GatewayPresence

log = logging.getLogger(__name__)

FLUSH_EVERY_S: Final = 60.0


@asynccontextmanager
async def companions(context: PlatformContext) -> AsyncIterator[None]:
    """All of them, for the length of the block."""
    async with _present(context.presence), _heard(context.notices), _last_use_written(context.authenticator):
        yield


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
async def _last_use_written(authenticator: Authenticator) -> AsyncIterator[None]:
    flushing = asyncio.create_task(_flush_last_used(authenticator))
    try:
        yield
    finally:
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await asyncio.to_thread(authenticator.flush_last_used)


async def _flush_last_used(authenticator: Authenticator) -> None:
    while True:
        await asyncio.sleep(FLUSH_EVERY_S)
        try:
            await asyncio.to_thread(authenticator.flush_last_used)
        except Exception:
            log.exception("times of last use were not written")
