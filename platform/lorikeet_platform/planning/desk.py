"""Where plans wait for their turn: they are made one after another, on a thread that nothing else needs.

A plan is a second of Python at the most, in the process that answers tenants; the threads that health checks and
requests wait for are others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from lorikeet_platform.errors import PlatformError

AT_ONCE = 1
MOST_WAITING = 8  # a dashboard's slider asks often, and nobody wants an answer after half a minute

T = TypeVar("T")
_limiter: RunVar[CapacityLimiter] = RunVar("plans")  # an event loop has one


async def in_turn(make: Callable[[], T]) -> T:
    """Raises PlatformError(overloaded) where many wait already."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(AT_ONCE)
        _limiter.set(limiter)
    if limiter.statistics().tasks_waiting >= MOST_WAITING:
        raise PlatformError("overloaded", "Many plans are being made already. Ask again in a moment.")
    return await run_sync(make, limiter=limiter)
