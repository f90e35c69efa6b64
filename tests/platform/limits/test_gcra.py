"""The rate algorithm by itself: bounds that hold for every sequence of charges, times and refunds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_platform.clock import HOUR, MINUTE, SECOND
from lorikeet_platform.limits.rates import gcra
from lorikeet_platform.limits.rates.gcra import Rate, State

START = 1_790_000_000 * SECOND
PER_MINUTE = 60
BURST = 10
MICROS = st.integers(0, 3 * MINUTE)
RATES = st.builds(
    lambda value, share: Rate(value, max(1, value * share // 100)), st.integers(1, 10**7), st.integers(1, 100)
)


@dataclass
class Bucket:
    rate: Rate
    now: int = START
    state: State | None = None
    passed: list[tuple[int, int]] = field(default_factory=list)  # when, and how many

    @property
    def due(self) -> int:
        return gcra.time_due(self.rate, self.state, self.now)

    def charge(self, cost: int) -> bool:
        due = self.due
        charged = gcra.charge(self.rate, due, cost, self.now)
        self.state = gcra.pack(self.rate, due if charged is None else charged)
        if charged is not None:
            self.passed.append((self.now, cost))
        return charged is not None

    def refund(self, cost: int, charged_until: int) -> None:
        self.state = gcra.pack(self.rate, gcra.refund(self.rate, self.due, cost, self.now, charged_until=charged_until))

    def read(self, cost: int = 0) -> gcra.Reading:
        return gcra.read(self.rate, self.due, self.now, cost)


@given(RATES, st.lists(st.tuples(MICROS, st.integers(1, 10**6)), max_size=30))
def test_in_no_interval_more_passes_than_a_burst_and_what_the_rate_allows(
    rate: Rate, asked: list[tuple[int, int]]
) -> None:
    bucket = Bucket(rate)
    for pause, cost in asked:
        bucket.now += pause
        bucket.charge(cost)
    for first, (begin, _) in enumerate(bucket.passed):
        total = 0
        for at, cost in bucket.passed[first:]:
            total += cost
            assert (total - rate.burst) * MINUTE <= (at - begin) * rate.value


@given(RATES, st.lists(st.integers(1, 1000), max_size=20))
def test_a_burst_passes_to_the_last_unit_and_not_one_more(rate: Rate, costs: list[int]) -> None:
    bucket, left = Bucket(rate), rate.burst
    for cost in costs:
        assert bucket.charge(cost) == (cost <= left)
        left -= cost if cost <= left else 0
        assert bucket.read().remaining == left
    assert not bucket.charge(left + 1)
    assert left == 0 or bucket.charge(left)


@given(RATES, st.lists(st.tuples(MICROS, st.integers(1, 10**6)), max_size=10), st.data())
def test_who_waits_as_long_as_told_passes_and_a_microsecond_earlier_does_not(
    rate: Rate, asked: list[tuple[int, int]], data: st.DataObject
) -> None:
    bucket = Bucket(rate)
    for pause, cost in asked:
        bucket.now += pause
        bucket.charge(cost)
    cost = data.draw(st.integers(1, rate.burst))
    wait = bucket.read(cost).wait
    if wait:
        bucket.now += wait - 1
        assert not bucket.charge(cost)
        bucket.now += 1
    assert bucket.charge(cost)


@given(RATES, st.integers(0, MINUTE), st.data())
def test_a_refund_leaves_what_a_smaller_charge_would_have_left(rate: Rate, before: int, data: st.DataObject) -> None:
    reserved = data.draw(st.integers(1, rate.burst))
    used = data.draw(st.integers(0, reserved))
    begun = data.draw(st.integers(0, rate.burst - reserved))
    asked_less, refunded = Bucket(rate), Bucket(rate)
    for bucket in (asked_less, refunded):
        bucket.charge(begun)
        bucket.now += before
    until = gcra.time_due(rate, refunded.state, refunded.now) + reserved * MINUTE
    assert asked_less.charge(used)
    assert refunded.charge(reserved)
    refunded.refund(reserved - used, until)
    assert refunded.due == asked_less.due


@given(RATES, st.lists(st.tuples(MICROS, st.integers(1, 10**6), st.integers(0, 100)), max_size=20))
def test_a_refund_gives_nothing_that_time_gave_already(rate: Rate, asked: list[tuple[int, int, int]]) -> None:
    """Reserving much, waiting, and giving it all back must not add up to several bursts at once."""
    bucket = Bucket(rate)
    for pause, cost, share in asked:
        bucket.now += pause
        if bucket.charge(min(cost, rate.burst)):
            until = bucket.due
            bucket.now += pause
            spent = min(cost, rate.burst) * share // 100
            bucket.refund(min(cost, rate.burst) - spent, until)
            bucket.passed[-1] = (bucket.passed[-1][0], spent)
    for first, (begin, _) in enumerate(bucket.passed):
        total = 0
        for at, cost in bucket.passed[first:]:
            total += cost
            assert (total - rate.burst) * MINUTE <= (at - begin) * rate.value


def test_reservations_that_time_has_paid_for_bring_no_second_burst() -> None:
    bucket = Bucket(Rate(PER_MINUTE, BURST))
    assert bucket.charge(BURST)
    until = bucket.due
    bucket.now += 10 * SECOND
    assert bucket.charge(BURST)
    bucket.refund(BURST, until)
    assert not bucket.charge(1)


def test_n_64_of_a_hundred_at_once_a_burst_passes() -> None:
    bucket = Bucket(Rate(PER_MINUTE, BURST))
    assert sum(bucket.charge(1) for _ in range(100)) == BURST
    bucket.now += 3 * SECOND
    assert sum(bucket.charge(1) for _ in range(100)) == 3


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_n_64_r_18_a_clock_that_steps_by_an_hour_locks_nobody_out(step: int) -> None:
    bucket = Bucket(Rate(PER_MINUTE, BURST))
    for _ in range(20):
        bucket.charge(1)
    bucket.now += step
    assert sum(bucket.charge(1) for _ in range(100)) <= BURST
    bucket.now += SECOND
    assert bucket.charge(1)
    bucket.now += 59 * SECOND
    assert sum(bucket.charge(1) for _ in range(100)) == BURST


def test_a_changed_rate_keeps_what_was_spent() -> None:
    bucket = Bucket(Rate(PER_MINUTE, BURST))
    assert bucket.charge(BURST)
    bucket.rate = Rate(7, 7)
    assert bucket.read().remaining == 5  # of a burst of a minute, ten seconds' worth is still to be paid
    bucket.rate = Rate(PER_MINUTE, 5)
    assert not bucket.charge(1)
    bucket.now += SECOND
    assert bucket.charge(1)


def test_a_share_of_a_limit_is_never_nothing() -> None:
    assert Rate(60, 10).share_of(3) == Rate(20, 10, n_counts=3)
    assert Rate(2, 1).share_of(3) == Rate(1, 1, n_counts=3)
