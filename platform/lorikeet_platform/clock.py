"""Time as the platform keeps it: integer microseconds since 1970, UTC.

Integers compare and store alike on SQLite and Postgres; a `Clock` comes in through constructors so that tests move it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def now_us() -> int:
    return time.time_ns() // 1_000


def unix_seconds(at_us: int) -> int:
    return at_us // SECOND
