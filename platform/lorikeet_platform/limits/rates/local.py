"""Buckets in this process: right where one gateway runs, and what is left when the shared ones are lost.

Time is the machine's monotonic clock, which nobody sets. A bucket that is full again is forgotten: it is what a new one
would be.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from lorikeet_platform.limits.rates import gcra
from lorikeet_platform.limits.rates.buckets import Charge, Outcome, Receipt, Refund
from lorikeet_platform.limits.rates.gcra import State

FORGOTTEN_AT_ONCE = 4  # more than one call adds, so that what is idle goes away faster than it can come


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


class LocalBuckets:
    """Thread-safe."""

    def __init__(self, clock: Callable[[], int] = monotonic_us) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: OrderedDict[str, State] = OrderedDict()  # by name, longest untouched first

    def __len__(self) -> int:
        return len(self._states)

    def charge(self, tenant_id: str, charges: Sequence[Charge]) -> Outcome:  # noqa: ARG002 (names are unique as they are)
        with self._lock:
            now = self._clock()
            due = [gcra.time_due(each.rate, self._states.get(each.name), now) for each in charges]
            charged = [
                gcra.charge(each.rate, before, each.cost, now) for each, before in zip(charges, due, strict=True)
            ]
            passed = None not in charged
            after = [made for made in charged if made is not None] if passed else due
            states = [gcra.pack(each.rate, at) for each, at in zip(charges, after, strict=True)]
            for each, state in zip(charges, states, strict=True):
                self._put(each.name, state)
            self._forget_idle(now)
        readings = tuple(
            gcra.read(each.rate, at, now, 0 if passed else each.cost) for each, at in zip(charges, after, strict=True)
        )
        receipts = (
            Receipt(each.name, each.rate, each.cost, state, is_shared=False)
            for each, state in zip(charges, states, strict=True)
            if passed and each.cost
        )
        return Outcome(passed, readings, tuple(receipts))

    def refund(self, tenant_id: str, refunds: Sequence[Refund]) -> None:  # noqa: ARG002
        with self._lock:
            now = self._clock()
            for each in refunds:
                receipt = each.receipt
                state = self._states.get(receipt.name)
                if state is not None:
                    rate = receipt.rate
                    due = gcra.time_due(rate, state, now)
                    until = gcra.unpack(rate, receipt.until)
                    left = gcra.refund(rate, due, each.cost, now, charged_until=until)
                    self._states[receipt.name] = gcra.pack(rate, left)

    def close(self) -> None:
        """Nothing is held open."""

    def note(self, debts: Sequence[tuple[str, int]]) -> None:
        """Bring buckets to what was read elsewhere: names, and in how many microseconds they are full."""
        with self._lock:
            now = self._clock()
            for name, full_in in debts:
                self._put(name, (now + full_in, 0))
            self._forget_idle(now)

    def debts(self) -> dict[str, int]:
        """Buckets that are not full, and in how many microseconds they are."""
        with self._lock:
            now = self._clock()
            return {name: state[0] + 1 - now for name, state in self._states.items() if state[0] >= now}

    def _put(self, name: str, state: State) -> None:
        self._states[name] = state
        self._states.move_to_end(name)

    def _forget_idle(self, now: int) -> None:
        for _ in range(FORGOTTEN_AT_ONCE):
            if not self._states:
                return
            name, state = next(iter(self._states.items()))
            if state >= (now, 0):
                return
            del self._states[name]
