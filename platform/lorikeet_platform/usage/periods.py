"""Calendar of usage: the months of budgets, the hours and days of roll-ups; UTC, integer microseconds since 1970."""

from __future__ import annotations

import calendar
import time
from typing import Final, Literal

from lorikeet_platform.clock import HOUR, SECOND

Granularity = Literal["hour", "day"]
DAY: Final = 24 * HOUR
LENGTHS: Final[dict[Granularity, int]] = {"hour": HOUR, "day": DAY}


def month_start(at_us: int) -> int:
    """The first moment of the month that `at_us` lies in."""
    moment = time.gmtime(at_us // SECOND)
    return calendar.timegm((moment.tm_year, moment.tm_mon, 1, 0, 0, 0)) * SECOND


def next_month_start(at_us: int) -> int:
    return month_start(month_start(at_us) + 32 * DAY)


def bucket_start(at_us: int, granularity: Granularity) -> int:
    return at_us - at_us % LENGTHS[granularity]
