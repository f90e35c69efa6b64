"""The generic cell rate algorithm, exactly: a bucket is one stored time, at which everything let through is paid for.

Whoever may have `value` units a minute pays a minute ÷ `value` for each, and may be `burst` units ahead of the clock.
A minute seldom divides by `value`, so everything is computed in grains, of which `value` make a microsecond: whole
numbers, and no rounding however many small charges are added up.

Pure: time is an argument, states are kept by `local` and `shared`, which says the same in Lua.
"""

from __future__ import annotations

from dataclasses import dataclass

from lorikeet_platform.clock import MINUTE

# The stored time: whole microseconds, and grains of the rate it was stored for.
State = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rate:
    """`value` units a minute, `burst` of them at once; both at least 1.

    Attributes:
        n_counts: of how many counts, that know nothing of each other, this is one. Of the burst it has its part, or
            what a single charge needs: what is never let through would never be served.
    """

    value: int
    burst: int
    n_counts: int = 1

    @property
    def window(self) -> int:
        """How far ahead of the clock the stored time may be, in grains."""
        return self.burst * MINUTE

    def window_for(self, cost: int) -> int:
        """How far ahead a charge of `cost` may put it."""
        return min(self.burst, max(1, self.burst // self.n_counts, cost)) * MINUTE

    def share_of(self, n: int) -> Rate:
        """What one of `n` counts may let through; never nothing at all."""
        return Rate(max(1, self.value // n), self.burst, n)


@dataclass(frozen=True, slots=True)
class Reading:
    """A bucket at one moment.

    Attributes:
        remaining: units that would pass now.
        full_in: microseconds until `burst` units would pass.
        wait: microseconds until the units asked for would pass; 0 = now.
    """

    remaining: int
    full_in: int
    wait: int


def time_due(rate: Rate, stored: State | None, now: int) -> int:
    """The stored time in grains, never before the clock, and never so far ahead that waiting a window is not enough.

    The second is for clocks that are set back: who is let through again must not depend on how far (R-18). It holds
    only when the result is stored, also by a refusal.
    """
    begin = now * rate.value
    if stored is None:
        return begin
    micros, grains = stored
    # After a change of the rate its grains are others: a difference of less than a microsecond.
    due = micros * rate.value + min(grains, rate.value - 1)
    return min(max(due, begin), begin + rate.window)


def charge(rate: Rate, due: int, cost: int, now: int) -> int | None:
    """The time due with `cost` units more; None = they do not pass now."""
    charged = due + cost * MINUTE
    return charged if charged <= now * rate.value + rate.window_for(cost) else None


def refund(rate: Rate, due: int, cost: int, now: int, *, charged_until: int) -> int:
    """The time due without `cost` of the units of an earlier charge.

    What time has given back already is not given back twice: of the charge, only what lies after now is left.

    Args:
        charged_until: the time due right after that charge.
    """
    begin = now * rate.value
    left = max(0, charged_until - begin)
    return max(begin, due - min(cost * MINUTE, left))


def read(rate: Rate, due: int, now: int, cost: int = 0) -> Reading:
    """`cost` are the units that were refused, if any were; more than a burst never passes."""
    begin = now * rate.value
    room = begin + rate.window_for(cost) - due
    return Reading(
        remaining=max(0, room // MINUTE),
        full_in=_micros(due - begin, rate),
        wait=_micros(max(0, cost * MINUTE - room), rate),
    )


def pack(rate: Rate, due: int) -> State:
    return divmod(due, rate.value)


def unpack(rate: Rate, state: State) -> int:
    return state[0] * rate.value + state[1]


def _micros(grains: int, rate: Rate) -> int:
    """Rounded up: after that many microseconds it is so, and not one earlier."""
    return -(-grains // rate.value)
