"""What every inference answer says of its caller's rates: `x-ratelimit-…`, as OpenAI's clients know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lorikeet_platform.clock import SECOND
from lorikeet_platform.limits.effective import Limit
from lorikeet_platform.limits.rates.gcra import Reading


@dataclass(frozen=True, slots=True)
class Standing:
    """The bucket that has least left: its limit a minute, what would pass now, and microseconds until it is full."""

    limit: int
    remaining: int
    full_in: int

    @classmethod
    def tightest(cls, limits: Sequence[Limit], readings: Sequence[Reading]) -> Standing:
        """No readings = a limit of 0, which has no bucket."""
        if not readings:
            return cls(0, 0, 0)
        limit, reading = min(
            zip(limits, readings, strict=False), key=lambda pair: (pair[1].remaining, pair[0].value, -pair[1].full_in)
        )
        return cls(limit.value, reading.remaining, reading.full_in)


def rate_headers(requests: Standing, tokens: Standing) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": str(requests.limit),
        "x-ratelimit-remaining-requests": str(requests.remaining),
        "x-ratelimit-reset-requests": duration(requests.full_in),
        "x-ratelimit-limit-tokens": str(tokens.limit),
        "x-ratelimit-remaining-tokens": str(tokens.remaining),
        "x-ratelimit-reset-tokens": duration(tokens.full_in),
    }


def duration(micros: int) -> str:
    """`250ms`, `1s`, `6m0s`: rounded up, so that waiting that long is enough."""
    millis = -(-micros // 1000)
    if millis < 1000:
        return f"{millis}ms" if millis else "0s"
    minutes, seconds = divmod(-(-micros // SECOND), 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
