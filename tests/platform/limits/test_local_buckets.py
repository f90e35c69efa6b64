"""Buckets of one process: nothing is kept for who is idle, and several are charged all or none."""

from __future__ import annotations

from lorikeet_platform.clock import HOUR, SECOND
from lorikeet_platform.limits.rates.buckets import Charge, Refund
from lorikeet_platform.limits.rates.gcra import Rate
from lorikeet_platform.limits.rates.local import LocalBuckets

RATE = Rate(60, 10)


class Time:
    now = HOUR

    def __call__(self) -> int:
        return self.now


def test_all_are_charged_or_none() -> None:
    buckets = LocalBuckets(Time())
    ask = [Charge("tenant", RATE, 1), Charge("key", Rate(60, 2), 1)]
    outcomes = [buckets.charge("ten_1", ask) for _ in range(5)]
    assert [outcome.passed for outcome in outcomes] == [True, True, False, False, False]
    assert [reading.remaining for reading in outcomes[-1].readings] == [8, 0]
    assert [reading.wait for reading in outcomes[-1].readings] == [0, SECOND]
    assert outcomes[-1].receipts == ()


def test_what_was_not_used_comes_back() -> None:
    buckets = LocalBuckets(Time())
    [receipt] = buckets.charge("ten_1", [Charge("tenant", RATE, 10)]).receipts
    assert not buckets.charge("ten_1", [Charge("tenant", RATE, 1)]).passed
    buckets.refund("ten_1", [Refund(receipt, 7)])
    assert buckets.charge("ten_1", [Charge("tenant", RATE, 0)]).readings[0].remaining == 7


def test_buckets_that_are_full_again_are_forgotten() -> None:
    time = Time()
    buckets = LocalBuckets(time)
    for number in range(1000):
        buckets.charge("ten_1", [Charge(f"key_{number}", RATE, 1), Charge(f"key_{number}:tokens", RATE, 1)])
        time.now += SECOND // 100
    assert len(buckets) <= 2 * 101


def test_buckets_are_brought_to_what_was_read_elsewhere() -> None:
    buckets = LocalBuckets(Time())
    buckets.note([("tenant", 8 * SECOND), ("key", 0)])
    look = buckets.charge("ten_1", [Charge("tenant", RATE, 0), Charge("key", RATE, 0)])
    assert [reading.remaining for reading in look.readings] == [2, 10]
    assert buckets.debts()["tenant"] // SECOND == 8
