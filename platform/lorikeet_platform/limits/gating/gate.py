"""The gate of the inference routes: rates of requests and tokens, and how many requests run at once (R-19, R-20).

    enter   a request that came: it counts, whatever becomes of it
    admit   before its usage record is opened: a place among those that run, and its tokens as far as they may go
    leave   in the end: the place is free, and tokens that were not used come back

The tenant's bucket has the tenant's limit, always; a key's lineage has a bucket where it has a limit of its own. How
many run is counted here for an early answer: the engine has the last word, by what each request says of its caps.
Synchronous and thread-safe: called in threads that the inference path has anyway; `leave` waits for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import SECOND
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import Limit
from lorikeet_platform.limits.gating.headers import Standing, rate_headers
from lorikeet_platform.limits.rates.buckets import Buckets, Charge, Outcome, Receipt, Refund
from lorikeet_platform.limits.rates.gcra import Rate
from lorikeet_platform.telemetry.limits import LimitMetrics

RateName = Literal["rpm", "tpm"]
CONCURRENCY_AGAIN_S: Final = 1.0
_UNITS: Final = {"rpm": "requests", "tpm": "tokens"}


@dataclass(slots=True)
class Passage:
    """One request on its way through the gate.

    Attributes:
        running: the subjects that it counts for as running.
        receipts: of its tokens, `tokens` of each bucket.
    """

    principal: Principal
    requests: Standing
    tokens: Standing
    running: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    n_tokens: int = 0

    @property
    def headers(self) -> dict[str, str]:
        return rate_headers(self.requests, self.tokens)

    @contextmanager
    def named_in_refusals(self) -> Iterator[None]:
        """Whatever the block refuses says how the caller's rates stand."""
        try:
            yield
        except PlatformError as error:
            error.headers |= self.headers
            raise


@dataclass(frozen=True, slots=True)
class _Asked:
    """Buckets of one dimension, and the limits that they stand for."""

    dimension: RateName
    limits: tuple[Limit, ...]
    charges: tuple[Charge, ...]

    @property
    def blocked(self) -> Limit | None:
        return next((limit for limit in self.limits if limit.value == 0 or limit.burst == 0), None)


@dataclass(slots=True)
class _Running:
    """How many requests run, by subject; only subjects that have any."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: dict[str, int] = field(default_factory=dict)


class LimitGate:
    """One per gateway.

    Args:
        buckets: where rates are counted.
    """

    def __init__(self, buckets: Buckets, metrics: LimitMetrics) -> None:
        self._buckets = buckets
        self._running = _Running()
        self._decisions = {
            (dimension, is_passed): metrics.decisions.labels(dimension, "passed" if is_passed else "refused")
            for dimension in ("rpm", "concurrent", "queue_depth", "tpm")
            for is_passed in (False, True)
        }

    def enter(self, principal: Principal) -> Passage:
        """Count a request. What is refused later counts all the same.

        Raises:
            PlatformError: rate_limit_exceeded; concurrency_limit_exceeded and queue_limit_exceeded as early as that can
                be known.
        """
        requests, tokens = _asked(principal, "rpm", 1), _asked(principal, "tpm", 0)
        if (blocked := requests.blocked) is not None:
            nothing = Passage(principal, Standing(0, 0, 0), Standing(principal.limits["tpm"].value, 0, 0))
            raise self._refused("rpm", _blocked("rpm", blocked), nothing)
        looked_at = () if tokens.blocked else tokens.charges
        outcome = self._buckets.charge(principal.tenant_id, (*requests.charges, *looked_at))
        n = len(requests.charges)
        passage = Passage(
            principal,
            Standing.tightest(requests.limits, outcome.readings[:n]),
            Standing.tightest(tokens.limits, outcome.readings[n:]),
        )
        if not outcome.passed:
            raise self._refused("rpm", _too_fast(requests, outcome), passage)
        self._decisions["rpm", True].inc()
        if (shut := _shut(principal)) is not None:
            raise self._refused("queue_depth", _none_may_wait(shut), passage)
        with self._running.lock:
            full = self._full(principal)
        if full is not None:
            raise self._refused("concurrent", _too_many(full), passage)
        return passage

    def admit(self, passage: Passage, n_tokens: int) -> None:
        """Take a place and at most `n_tokens`; both or neither.

        Raises:
            PlatformError: concurrency_limit_exceeded, rate_limit_exceeded, request_exceeds_tpm.
        """
        self._take_place(passage)
        try:
            self._take_tokens(passage, n_tokens)
        except BaseException:
            self.leave(passage, 0)
            raise

    def leave(self, passage: Passage, n_used: int) -> None:
        """Give the place back, and the tokens that were not used; a second call changes nothing."""
        running, receipts = passage.running, passage.receipts
        passage.running, passage.receipts = (), ()
        with self._running.lock:
            for subject in running:
                self._running.counts[subject] -= 1
                if not self._running.counts[subject]:
                    del self._running.counts[subject]
        unused = passage.n_tokens - n_used
        if receipts and unused > 0:
            self._buckets.refund(passage.principal.tenant_id, [Refund(receipt, unused) for receipt in receipts])

    def close(self) -> None:
        self._buckets.close()

    def _take_place(self, passage: Passage) -> None:
        with self._running.lock:
            full = self._full(passage.principal)
            if full is None:
                passage.running = tuple(subject for subject, _ in _running_limits(passage.principal))
                for subject in passage.running:
                    self._running.counts[subject] = self._running.counts.get(subject, 0) + 1
        if full is not None:
            raise self._refused("concurrent", _too_many(full), passage)
        self._decisions["concurrent", True].inc()

    def _full(self, principal: Principal) -> Limit | None:
        counts = self._running.counts
        limits = _running_limits(principal)
        return next((limit for subject, limit in limits if counts.get(subject, 0) >= limit.value), None)

    def _take_tokens(self, passage: Passage, n_tokens: int) -> None:
        asked = _asked(passage.principal, "tpm", n_tokens)
        if (blocked := asked.blocked) is not None:
            raise self._refused("tpm", _blocked("tpm", blocked), passage)
        smallest = min(asked.limits, key=lambda limit: limit.burst)
        if n_tokens > smallest.burst:
            raise self._refused("tpm", _too_large(n_tokens, smallest), passage)
        outcome = self._buckets.charge(passage.principal.tenant_id, asked.charges)
        passage.tokens = Standing.tightest(asked.limits, outcome.readings)
        if not outcome.passed:
            raise self._refused("tpm", _too_fast(asked, outcome), passage)
        passage.receipts, passage.n_tokens = outcome.receipts, n_tokens
        self._decisions["tpm", True].inc()

    def _refused(self, dimension: str, error: PlatformError, passage: Passage) -> PlatformError:
        self._decisions[dimension, False].inc()
        error.headers |= passage.headers
        return error


def _asked(principal: Principal, dimension: RateName, cost: int) -> _Asked:
    limits = [principal.limits.of_tenant[dimension]]
    names = [f"{principal.tenant_id}:{dimension}"]
    if (own := principal.limits.of_key.get(dimension)) is not None:
        limits.append(own)
        names.append(f"{principal.subject_id}:{dimension}")
    rates = (Rate(max(1, limit.value), max(1, limit.burst)) for limit in limits)
    charges = (Charge(name, rate, cost) for name, rate in zip(names, rates, strict=True))
    return _Asked(dimension, tuple(limits), tuple(charges))


def _running_limits(principal: Principal) -> Sequence[tuple[str, Limit]]:
    tenant = (principal.tenant_id, principal.limits.of_tenant["concurrent"])
    own = principal.limits.of_key.get("concurrent")
    return (tenant,) if own is None else (tenant, (principal.subject_id, own))


def _shut(principal: Principal) -> Limit | None:
    """What lets no request wait: every request waits before it runs, if only for a moment."""
    limits = principal.limits
    asked = (limits.of_tenant["queue_depth"], limits.of_key.get("queue_depth"))
    return next((limit for limit in asked if limit is not None and limit.value == 0), None)


def _blocked(dimension: RateName, limit: Limit) -> PlatformError:
    sentence = f"No {_UNITS[dimension]} are allowed: the {limit.origin}'s limit is 0."
    return PlatformError("rate_limit_exceeded", sentence, _UNITS[dimension], is_final=True)


def _too_fast(asked: _Asked, outcome: Outcome) -> PlatformError:
    """Names the limit that takes longest to let it through."""
    limit, reading = max(zip(asked.limits, outcome.readings, strict=False), key=lambda pair: pair[1].wait)
    units = _UNITS[asked.dimension]
    sentence = f"The {limit.origin}'s limit is {limit.value} {units} a minute, {limit.burst} at once; "
    cost = asked.charges[0].cost
    sentence += f"{cost} {units if cost != 1 else units[:-1]} would pass in {reading.wait / SECOND:.3f} s."
    return PlatformError("rate_limit_exceeded", sentence, units, retry_after_s=reading.wait / SECOND)


def _too_large(n_tokens: int, limit: Limit) -> PlatformError:
    return PlatformError(
        "request_exceeds_tpm",
        f"Prompt and max_tokens are {n_tokens} tokens together; the {limit.origin}'s limit lets {limit.burst} through "
        "at once.",
        "max_tokens",
    )


def _none_may_wait(limit: Limit) -> PlatformError:
    sentence = f"No requests may wait: the {limit.origin}'s limit is 0."
    return PlatformError("queue_limit_exceeded", sentence, is_final=True)


def _too_many(limit: Limit) -> PlatformError:
    if limit.value == 0:
        sentence = f"No requests may run: the {limit.origin}'s limit is 0."
        return PlatformError("concurrency_limit_exceeded", sentence, is_final=True)
    sentence = f"The {limit.origin}'s limit is {limit.value} requests at once."
    return PlatformError("concurrency_limit_exceeded", sentence, retry_after_s=CONCURRENCY_AGAIN_S)
