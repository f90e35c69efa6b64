"""Images in host memory: room before loads, leases that hold, and every byte in the ledger."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.host_cache import (
    LEASE_LOADS,
    LEASE_MAX_S,
    LEASE_MIN_S,
    LOAD_HALF_LIFE_S,
    AdapterHostCache,
)
from lorikeet_engine.memory.adapters.wishes import LoadWishes
from lorikeet_engine.memory.ledger import MemoryState

CAPACITY, MAX_LOADING = 40, 3
KEYS = [AdapterKey(f"tenant{i % 3}", f"digest{i}") for i in range(9)]
SIZES = dict(zip(KEYS, (3, 5, 7, 11, 2, 9, 17, 4, 23), strict=True))


class HostCacheMachine(RuleBasedStateMachine):
    """Random wishes, loads, leases, copies and drops; `images` is what the loop would keep in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = AdapterHostCache(capacity=CAPACITY, max_loading=MAX_LOADING)
        self.images: set[AdapterKey] = set()
        self.loading: set[AdapterKey] = set()
        self.wished: set[AdapterKey] = set()
        self.leased: dict[AdapterKey, float] = {}
        self.used: set[AdapterKey] = set()
        self.preferred: AdapterKey | None = None
        self.now = 0.0

    @rule(key=st.sampled_from(KEYS), knows_size=st.booleans())
    def wish(self, key: AdapterKey, knows_size: bool) -> None:
        if key in self.images or key in self.loading:
            with pytest.raises(ValueError, match="on its way"):
                self.cache.wish(key, 1)
        else:
            self.cache.wish(key, SIZES[key] if knows_size else 0)
            self.wished.add(key)

    @rule(key=st.sampled_from(KEYS))
    def unwish(self, key: AdapterKey) -> None:
        self.cache.unwish(key)
        self.wished.discard(key)

    @rule(key=st.sampled_from(KEYS))
    def prefer(self, key: AdapterKey) -> None:
        self.cache.prefer(key)
        self.preferred = key

    @rule()
    def start_loads(self) -> None:
        while started := self.cache.start_next(self.now):
            key, dropped = started
            assert key in self.wished
            assert key == self.preferred or self.preferred not in self.wished, "somebody overtook the barrier"
            self.wished.remove(key)
            self.loading.add(key)
            self.check_dropped(dropped, key)
        self.carry_out_drops()

    @precondition(lambda self: self.loading)
    @rule(data=st.data(), outcome=st.sampled_from(("works", "works", "fails", "is refused")))
    def finish_load(self, data: st.DataObject, outcome: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.loading)))
        self.loading.remove(key)
        if outcome == "fails":
            self.cache.fail(key)
            return
        self.images.add(key)
        if outcome == "is refused":
            self.cache.refuse(key)
            dropped: list[AdapterKey] | None = []
        else:
            dropped = self.cache.arrive(key, SIZES[key], self.now)
        self.check_dropped(dropped or [], key)
        self.carry_out_drops()
        assert (key in self.images) == (outcome == "works" and dropped is not None)

    @precondition(lambda self: self.images)
    @rule(data=st.data(), fate=st.sampled_from(("leased", "used", "idle", "dropped")))
    def move_image(self, data: st.DataObject, fate: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.images)))
        if fate == "dropped":
            if key in self.used:
                with pytest.raises(ValueError, match="being copied"):
                    self.cache.drop(key, "retired")
                return
            self.cache.drop(key, "retired")
            self.leased.pop(key, None)
            self.carry_out_drops()
            assert key not in self.images
            return
        self.leased.pop(key, None)
        self.used.discard(key)
        if fate == "leased":
            self.cache.lease(key, self.now)
            self.leased[key] = self.now + self.cache.lease_s
        elif fate == "used":
            self.cache.use(key)
            self.used.add(key)
        else:
            self.cache.idle(key)

    @rule(seconds=st.sampled_from((0.01, 0.5, 2.0)))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds

    def check_dropped(self, dropped: list[AdapterKey], for_whom: AdapterKey) -> None:
        for key in dropped:
            assert key not in self.used
            if key in self.leased:
                assert for_whom == self.preferred, "only the barrier breaks a lease"
                assert self.leased.pop(key) <= self.now, "a lease was broken before its time"

    def carry_out_drops(self) -> None:
        for key in self.cache.take_dropped():
            self.images.remove(key)
        assert self.cache.take_dropped() == []

    @invariant()
    def every_byte_is_where_the_ledger_says(self) -> None:
        self.cache.ledger.audit()
        assert {state: self.cache.ledger[state] for state in MemoryState} == self.cache.recount()
        assert self.cache.ledger[MemoryState.RESERVED] == sum(SIZES[key] for key in self.leased)
        assert self.cache.ledger[MemoryState.USED] == sum(SIZES[key] for key in self.used)
        idle = self.images - set(self.leased) - self.used
        assert self.cache.ledger[MemoryState.CACHED] == sum(SIZES[key] for key in idle)

    @invariant()
    def the_cache_and_the_loop_keep_the_same_images(self) -> None:
        assert {key for key in KEYS if key in self.cache} == self.images
        assert {key for key in KEYS if self.cache.is_wished(key)} == self.wished
        assert len(self.loading) <= MAX_LOADING


TestHostCacheMachine = HostCacheMachine.TestCase
TestHostCacheMachine.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)


def load(cache: AdapterHostCache, key: AdapterKey, n_bytes: int, now: float = 0.0) -> bool:
    cache.wish(key, n_bytes)
    if cache.start_next(now) is None:
        return False
    return cache.arrive(key, n_bytes, now) is not None


def test_the_least_recently_used_idle_image_is_dropped_first() -> None:
    cache = AdapterHostCache(capacity=10, max_loading=1)
    assert load(cache, KEYS[0], 5)
    assert load(cache, KEYS[1], 5)
    cache.use(KEYS[0])
    cache.idle(KEYS[0])
    assert load(cache, KEYS[2], 5)
    assert cache.take_dropped() == [KEYS[1]]
    assert cache.drops["room"] == 1


def test_a_load_waits_while_requests_need_all_of_host_memory() -> None:
    cache = AdapterHostCache(capacity=10, max_loading=1)
    assert load(cache, KEYS[0], 6)
    cache.lease(KEYS[0], 0.0)
    assert not load(cache, KEYS[1], 5, now=100.0)
    assert cache.take_dropped() == []
    cache.idle(KEYS[0])
    assert cache.start_next(100.0) == (KEYS[1], [KEYS[0]])


def test_the_barrier_takes_the_oldest_expired_lease_and_no_more_than_it_needs() -> None:
    cache = AdapterHostCache(capacity=10, max_loading=1)
    for second, key in enumerate(KEYS[:2]):
        assert load(cache, key, 5)
        cache.lease(key, second / 2)
    cache.wish(KEYS[2], 4)
    cache.prefer(KEYS[2])
    assert cache.start_next(LEASE_MIN_S - 0.1) is None
    assert cache.start_next(LEASE_MIN_S + 5) == (KEYS[2], [KEYS[0]])
    assert cache.drops["lease_expired"] == 1
    assert KEYS[1] in cache


def test_a_lease_lasts_a_few_loads() -> None:
    cache = AdapterHostCache(capacity=10, max_loading=1)
    assert cache.lease_s == LEASE_MIN_S
    cache.wish(KEYS[0], 5)
    cache.start_next(10.0)
    cache.arrive(KEYS[0], 5, 12.0)
    assert cache.lease_s == 2.0 * LEASE_LOADS
    cache.drop(KEYS[0], "retired")
    cache.wish(KEYS[0], 5)
    cache.start_next(20.0)
    cache.arrive(KEYS[0], 5, 9000.0)
    assert cache.lease_s == LEASE_MAX_S


def test_an_image_larger_than_expected_is_dropped_when_requests_need_the_rest() -> None:
    cache = AdapterHostCache(capacity=10, max_loading=1)
    assert load(cache, KEYS[0], 4)
    cache.lease(KEYS[0], 0.0)
    cache.wish(KEYS[1], 0)
    assert cache.start_next(0.0) == (KEYS[1], [])
    assert cache.ledger[MemoryState.IN_FLIGHT] == 4, "what images took so far is expected"
    assert cache.arrive(KEYS[1], 7, 0.0) is None
    assert cache.take_dropped() == [KEYS[1]]
    assert cache.drops["no_room"] == 1
    assert cache.ledger[MemoryState.FREE] == 6


def test_an_image_that_came_back_is_not_dropped_for_its_predecessor() -> None:
    cache = AdapterHostCache(capacity=10, max_loading=1)
    assert load(cache, KEYS[0], 5)
    cache.drop(KEYS[0], "retired")
    assert load(cache, KEYS[0], 5)
    assert cache.take_dropped() == []


def test_tenants_take_turns_and_each_is_served_in_order() -> None:
    wishes = LoadWishes()
    anna, ben = [AdapterKey("anna", f"{i}") for i in range(3)], AdapterKey("ben", "0")
    for key in (*anna, ben, anna[0]):
        wishes.add(key, 0)
    granted = []
    while head := wishes.head():
        wishes.grant(head)
        granted.append(head)
    assert granted == [anna[0], ben, anna[1], anna[2]]


def test_the_preferred_wish_comes_first_and_a_withdrawn_one_never() -> None:
    wishes = LoadWishes()
    for key in KEYS[:4]:
        wishes.add(key, 0)
    wishes.preferred = KEYS[3]
    assert wishes.head() == KEYS[3]
    wishes.discard(KEYS[3])
    wishes.discard(KEYS[0])
    assert wishes.head() == KEYS[1]


def test_further_requests_do_not_prolong_a_lease() -> None:
    """Or an image that somebody wants again and again would keep the barrier waiting for ever."""
    cache = AdapterHostCache(capacity=100, max_loading=1)
    load(cache, KEYS[0], 60)
    cache.lease(KEYS[0], 0.0)
    for tenth in range(1, 30):
        cache.lease(KEYS[0], tenth / 10)
    cache.wish(KEYS[1], 60)
    cache.prefer(KEYS[1])
    assert cache.start_next(LEASE_MIN_S / 2) is None
    assert cache.start_next(LEASE_MIN_S) == (KEYS[1], [KEYS[0]])


def test_what_loads_took_fades_and_a_new_one_then_says_more() -> None:
    cache = AdapterHostCache(capacity=1000, max_loading=1)
    slow, fast = KEYS[:2]
    cache.wish(slow, 10)
    cache.start_next(0.0)
    cache.arrive(slow, 10, 8.0)
    assert cache.expected_load_s(8.0) == 8.0
    assert cache.expected_load_s(8.0 + LOAD_HALF_LIFE_S) == 4.0
    assert cache.expected_load_s(8.0 + 10 * LOAD_HALF_LIFE_S) < 0.01
    later = 8.0 + 10 * LOAD_HALF_LIFE_S
    cache.wish(fast, 10)
    cache.start_next(later)
    cache.arrive(fast, 10, later + 1.0)
    assert cache.expected_load_s(later + 1.0) == pytest.approx(1.0, rel=0.01)
