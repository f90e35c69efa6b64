"""What a gateway lets through while Redis is lost: large requests pass in the end, refunds count when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from lorikeet_platform.clock import MINUTE, SECOND
from lorikeet_platform.limits.rates.buckets import Charge, Outcome, Refund
from lorikeet_platform.limits.rates.degrading import DegradingBuckets
from lorikeet_platform.limits.rates.gcra import Rate
from lorikeet_platform.limits.rates.local import LocalBuckets
from lorikeet_platform.limits.rates.shared import SharedBuckets

TENANT, RATE = "ten_1", Rate(12_000, 6000)


@dataclass
class Redis(SharedBuckets):
    """Shared buckets that are there or not."""

    is_up: bool = True
    debts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.errors = (ConnectionError,)
        self.buckets = LocalBuckets()
        self.changes: list[bool] = []  # what was told of it: whether it is lost

    def ping(self) -> None:
        if not self.is_up:
            raise ConnectionError

    def charge(
        self,
        tenant_id: str,
        charges: Sequence[Charge],
        *,
        refunds: Sequence[Refund] = (),  # noqa: ARG002
        debts: Sequence[int] | None = None,
    ) -> Outcome:
        self.ping()
        self.debts += debts or ()
        return self.buckets.charge(tenant_id, charges)

    def refund(self, tenant_id: str, refunds: Sequence[Refund]) -> None:  # noqa: ARG002
        self.ping()

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
def buckets(redis: Redis) -> Iterator[DegradingBuckets]:
    """One of three gateways, without Redis."""
    buckets = DegradingBuckets(redis, n_live=lambda: 3, on_change=redis.changes.append, lost_for_s=0.02)
    redis.is_up = False
    yield buckets
    buckets.close()


def charge(buckets: DegradingBuckets, n_tokens: int) -> Outcome:
    return buckets.charge(TENANT, [Charge("tokens", RATE, n_tokens)])


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_r_17_a_request_above_a_gateways_share_of_the_burst_passes_when_nothing_of_it_is_used(
    buckets: DegradingBuckets,
) -> None:
    assert charge(buckets, 6000).passed
    assert not charge(buckets, 1).passed


def test_r_17_what_such_a_request_used_is_paid_for_at_the_gateways_share_of_the_rate() -> None:
    now = MINUTE
    alone, share = LocalBuckets(lambda: now), RATE.share_of(3)
    for _ in range(2):
        began = now
        assert alone.charge(TENANT, [Charge("tokens", share, 6000)]).passed
        for _ in range(6):  # others only look, and what they see takes nothing off the debt
            alone.charge(TENANT, [Charge("tokens", share, 0)])
        refused = alone.charge(TENANT, [Charge("tokens", share, 6000)])
        assert (refused.passed, refused.readings[0].wait) == (False, 6000 * MINUTE // 4000)
        now += refused.readings[0].wait - 1
        assert not alone.charge(TENANT, [Charge("tokens", share, 6000)]).passed
        now += 1
        assert now - began == 90 * SECOND


def test_r_17_small_requests_have_the_gateways_share_of_the_burst(buckets: DegradingBuckets) -> None:
    assert sum(charge(buckets, 100).passed for _ in range(60)) == pytest.approx(20, abs=1)


@pytest.mark.parametrize("returns_first", [False, True])
def test_n_65_tokens_that_come_back_when_redis_does_are_not_owed_to_it(
    redis: Redis, buckets: DegradingBuckets, returns_first: bool
) -> None:
    [receipt] = charge(buckets, 1000).receipts
    assert not receipt.is_shared
    if not returns_first:
        buckets.refund(TENANT, [Refund(receipt, 990)])
    redis.is_up = True
    wait_for(lambda: redis.changes == [True, False])  # it was lost, and it is back
    if returns_first:
        buckets.refund(TENANT, [Refund(receipt, 990)])
    assert charge(buckets, 1).passed
    assert 0 < redis.debts[-1] <= 10 * MINUTE // 4000 + 1
