"""Who asks with keys that are none: how many such questions one address may put to the database.

Only keys that this process has not seen to be good are counted here, so that whoever shares an address with a guesser
goes on with the keys that work.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final

from lorikeet_platform.auth.addresses import Address
from lorikeet_platform.clock import SECOND
from lorikeet_platform.errors import PlatformError

WRONG_A_SECOND: Final = 5
WRONG_AT_ONCE: Final = 100
ASKING_AT_ONCE: Final = 64  # questions of one address that have no answer yet
ADDRESSES: Final = 10_000  # that are kept in mind
_EACH_US: Final = SECOND // WRONG_A_SECOND


@dataclass(slots=True)
class _Stranger:
    """`due`: when its wrong keys are paid for; a stored time, as in `limits.rates.gcra`."""

    due: int = 0
    n_asking: int = 0


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


class Strangers:
    """For one event loop. An address that is not known is one address."""

    def __init__(self, clock: Callable[[], int] = _monotonic_us) -> None:
        self._clock = clock
        self._strangers: OrderedDict[object, _Stranger] = OrderedDict()  # the longest unheard of first

    def begin(self, address: Address | None) -> None:
        """Ask about a key; `end` follows.

        Raises:
            PlatformError: rate_limit_exceeded, auth_unavailable where it has too many questions under way.
        """
        stranger, now = self._find(address), self._clock()
        wait = stranger.due - now - (WRONG_AT_ONCE - 1) * _EACH_US
        if wait > 0:
            raise PlatformError(
                "rate_limit_exceeded", "Too many wrong API keys from your address.", retry_after_s=wait / SECOND
            )
        if stranger.n_asking >= ASKING_AT_ONCE:
            raise PlatformError("auth_unavailable")
        stranger.n_asking += 1

    def end(self, address: Address | None, *, is_wrong: bool) -> None:
        stranger = self._find(address)
        stranger.n_asking = max(0, stranger.n_asking - 1)
        if is_wrong:
            stranger.due = max(stranger.due, self._clock()) + _EACH_US

    def _find(self, address: Address | None) -> _Stranger:
        name = _place(address)
        stranger = self._strangers.setdefault(name, _Stranger())
        self._strangers.move_to_end(name)
        if len(self._strangers) > ADDRESSES:
            self._strangers.popitem(last=False)
        return stranger


def _place(address: Address | None) -> object:
    """Who has an IPv6 address has the 2**64 beside it."""
    if address is None or address.version == 4:
        return address
    return ip_network((address.packed, 64), strict=False)
