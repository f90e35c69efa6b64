"""Bounds of one tenant's requests that ask no model: adapters, uploads, keys, usage. Of this process, on its loop.

They share threads and database connections with everybody, so a tenant has a few places, and a bucket of requests of
its own: at the tenant's rpm, but never below what a person or a push needs, since who may ask no model may still look
after what it has. What holds neither thread nor connection steps aside meanwhile. Knows no routes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import SECOND
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.rates import gcra
from lorikeet_platform.limits.rates.buckets import Charge
from lorikeet_platform.limits.rates.gcra import Rate
from lorikeet_platform.limits.rates.local import LocalBuckets, monotonic_us

AT_ONCE: Final = 8
WAITING_AT_ONCE: Final = 32
AGAIN_S: Final = 1.0
LEAST: Final = Rate(600, 100)


class Turnstile:
    """One per gateway; not for threads."""

    def __init__(self, clock: Callable[[], int] = monotonic_us) -> None:
        self._buckets = LocalBuckets(clock)
        self._inside: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()

    def enter(self, principal: Principal) -> Place:
        """A place for one request, to be left in the end.

        Raises:
            PlatformError: concurrency_limit_exceeded, rate_limit_exceeded.
        """
        tenant_id = principal.tenant_id
        if self._inside[tenant_id] >= AT_ONCE:
            raise _too_many(AT_ONCE)
        limit = principal.limits.of_tenant["rpm"]
        rate = Rate(max(limit.value, LEAST.value), max(limit.burst, LEAST.burst))
        outcome = self._buckets.charge(tenant_id, (Charge(tenant_id, rate, 1),))
        if not outcome.passed:
            raise _too_fast(rate, outcome.readings[0])
        self._inside[tenant_id] += 1
        return Place(self, tenant_id)

    def __len__(self) -> int:
        """Requests inside or waiting, of everybody."""
        return self._inside.total() + self._waiting.total()

    def _move(self, tenant_id: str, *, inside: int = 0, waiting: int = 0) -> None:
        for counts, by in ((self._inside, inside), (self._waiting, waiting)):
            counts[tenant_id] += by
            if not counts[tenant_id]:
                del counts[tenant_id]

    def _check_waiting(self, tenant_id: str) -> None:
        if self._waiting[tenant_id] >= WAITING_AT_ONCE:
            raise _too_many(WAITING_AT_ONCE, "wait for something")


class Place:
    """One request inside."""

    def __init__(self, turnstile: Turnstile, tenant_id: str) -> None:
        self._turnstile, self._tenant_id, self._is_held = turnstile, tenant_id, True

    def leave(self) -> None:
        """A second call changes nothing."""
        if self._is_held:
            self._is_held = False
            self._turnstile._move(self._tenant_id, inside=-1)

    @contextmanager
    def counted_elsewhere(self) -> Iterator[None]:
        """For the length of the block something else bounds how many such requests there are."""
        self._turnstile._move(self._tenant_id, inside=-1)
        try:
            yield
        finally:
            self._turnstile._move(self._tenant_id, inside=1)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For the length of the block the request only waits.

        Raises:
            PlatformError: concurrency_limit_exceeded.
        """
        self._turnstile._check_waiting(self._tenant_id)
        self._turnstile._move(self._tenant_id, inside=-1, waiting=1)
        try:
            yield
        finally:
            self._turnstile._move(self._tenant_id, inside=1, waiting=-1)


def _too_many(at_once: int, do: str = "run") -> PlatformError:
    sentence = f"At most {at_once} requests of a tenant that ask no model may {do} at once."
    return PlatformError("concurrency_limit_exceeded", sentence, retry_after_s=AGAIN_S)


def _too_fast(rate: Rate, reading: gcra.Reading) -> PlatformError:
    sentence = f"A tenant may make {rate.value} requests a minute that ask no model, {rate.burst} at once."
    return PlatformError("rate_limit_exceeded", sentence, "requests", retry_after_s=reading.wait / SECOND)
