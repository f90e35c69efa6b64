"""Which adapter leaves first: by score, no more than needed, and none that could have been spared."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.eviction import (
    HALF_LIFE_S,
    Demand,
    EvictionOrder,
    EvictionPolicy,
    ReloadCost,
    Usage,
)

KEYS = [AdapterKey("tenant", f"digest{i}") for i in range(8)]
COST = ReloadCost(place_seconds_per_byte=1e-6, load_seconds_per_byte=1e-5, load_latency_s=0.01)


def order_of(policy: EvictionPolicy = "gdsf") -> EvictionOrder:
    return EvictionOrder(policy, COST)


def score(
    order: EvictionOrder,
    usage: Usage,
    *,
    waiting: int = 0,
    n_prefix_blocks: int = 0,
    n_grains: int = 10,
    from_host: bool = True,
    now: float = 0.0,
) -> float:
    demand = Demand(waiting, n_prefix_blocks, from_host)
    return order.score(usage, demand, n_grains=n_grains, n_bytes=n_grains * 100, now=now)


class OrderMachine(RuleBasedStateMachine):
    """Random offers and withdrawals; a sorted list says who should leave."""

    def __init__(self) -> None:
        super().__init__()
        self.order = order_of()
        self.offered: dict[AdapterKey, tuple[float, int, int]] = {}  # score, how late it was offered, grains
        self.n_offers = 0

    @rule(key=st.sampled_from(KEYS), n_grains=st.integers(1, 9), score=st.integers(0, 5))
    def offer(self, key: AdapterKey, n_grains: int, score: int) -> None:
        self.n_offers += 1
        self.offered[key] = (score, self.n_offers, n_grains)
        self.order.offer(key, n_grains, score)

    @rule(key=st.sampled_from(KEYS))
    def withdraw(self, key: AdapterKey) -> None:
        self.offered.pop(key, None)
        self.order.withdraw(key)

    @rule(n_grains=st.integers(1, 30))
    def take(self, n_grains: int) -> None:
        if n_grains > self.order.n_grains:
            with pytest.raises(ValueError, match="are to leave"):
                self.order.take(n_grains)
            return
        by_score = sorted(self.offered, key=lambda key: self.offered[key])
        expected: list[AdapterKey] = []
        while sum(self.offered[key][2] for key in expected) < n_grains:
            expected.append(by_score[len(expected)])
        for key in reversed(list(expected)):
            if sum(self.offered[k][2] for k in expected if k != key) >= n_grains:
                expected.remove(key)
        clock = max(self.order.clock, *(self.offered[key][0] for key in expected))
        assert self.order.take(n_grains) == expected
        assert self.order.clock == clock
        for key in expected:
            del self.offered[key]

    @invariant()
    def it_knows_who_may_leave(self) -> None:
        assert {key for key in KEYS if key in self.order} == set(self.offered)
        assert len(self.order) == len(self.offered)
        assert self.order.n_grains == sum(n_grains for _, _, n_grains in self.offered.values())


TestOrderMachine = OrderMachine.TestCase
TestOrderMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_score_is_the_formula_of_the_design() -> None:
    order, usage = order_of(), Usage()
    order.clock = 7.0
    order.hit(usage, 0.0)
    order.hit(usage, HALF_LIFE_S)
    assert usage.decayed(HALF_LIFE_S) == 1.5
    from_host = score(order, usage, waiting=3, now=2 * HALF_LIFE_S)
    assert from_host == pytest.approx(7.0 + (0.75 + 6) * (1000 * 1e-6) / 10)
    from_disk = score(order, usage, waiting=3, from_host=False, now=2 * HALF_LIFE_S)
    assert from_disk == pytest.approx(7.0 + (0.75 + 6) * (1000 * 1.1e-5 + 0.01) / 10)


@given(hits=st.integers(1, 9), waiting=st.integers(0, 9), n_grains=st.integers(1, 1000), idle_s=st.floats(0, 600))
def test_what_costs_more_to_miss_stays_longer(hits: int, waiting: int, n_grains: int, idle_s: float) -> None:
    order, usage = order_of(), Usage()
    for _ in range(hits):
        order.hit(usage, 0.0)
    here = score(order, usage, waiting=waiting, n_grains=n_grains, now=idle_s)
    assert score(order, usage, waiting=waiting + 1, n_grains=n_grains, now=idle_s) > here
    assert score(order, usage, waiting=waiting, n_grains=n_grains, from_host=False, now=idle_s) > here
    assert score(order, usage, waiting=waiting, n_grains=n_grains, now=idle_s + 30) < here
    order.hit(usage, idle_s)
    assert score(order, usage, waiting=waiting, n_grains=n_grains, now=idle_s) > here


def test_a_small_adapter_outlives_a_large_one_that_is_as_popular() -> None:
    order = order_of()
    for key, n_grains in ((KEYS[0], 5), (KEYS[1], 50)):
        usage = Usage()
        order.hit(usage, 0.0)
        order.offer(key, n_grains, score(order, usage, n_grains=n_grains, from_host=False))
    assert order.take(5) == [KEYS[1]]


def test_what_was_popular_long_ago_leaves_as_the_clock_rises() -> None:
    order, veteran = order_of(), Usage()
    for _ in range(3):
        order.hit(veteran, 0.0)
    order.offer(KEYS[0], 10, score(order, veteran))
    leavers = []
    for round_ in range(8):
        usage = Usage()
        order.hit(usage, float(round_))
        order.offer(KEYS[1 + round_ % 7], 10, score(order, usage, now=float(round_)))
        leavers += order.take(10)
    assert leavers[0] != KEYS[0]
    assert KEYS[0] in leavers


def test_lru_looks_at_the_last_use_only() -> None:
    order = order_of("lru")
    usages = {key: Usage() for key in KEYS[:3]}
    for key in (KEYS[0], KEYS[0], KEYS[0], KEYS[1], KEYS[2], KEYS[0], KEYS[1]):
        order.hit(usages[key], 0.0)
    for key, usage in usages.items():
        order.offer(key, 10, score(order, usage, waiting=5))
    assert [order.take(10)[0] for _ in usages] == [KEYS[2], KEYS[0], KEYS[1]]


def test_offering_again_and_again_takes_no_memory() -> None:
    order = order_of()
    for round_ in range(10_000):
        order.offer(KEYS[round_ % 8], 1, float(round_ % 13))
    assert len(order._heap) <= 2 * 8 + 64 + 1


def test_an_adapter_with_cached_prefixes_is_kept_longer() -> None:
    order = order_of()
    usage = Usage()
    assert score(order, usage, n_prefix_blocks=32) > score(order, usage, n_prefix_blocks=0)
    assert score(order, usage, n_prefix_blocks=32) == score(order, usage, waiting=1)
