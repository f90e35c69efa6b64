"""The script in Redis says what the algorithm says, for every sequence; several buckets are charged all or none."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lorikeet_platform.clock import HOUR, SECOND
from lorikeet_platform.limits.rates import gcra
from lorikeet_platform.limits.rates.buckets import Charge, Receipt, Refund
from lorikeet_platform.limits.rates.gcra import Rate, State
from lorikeet_platform.limits.rates.shared import SharedBuckets
from tests.platform.limits.conftest import RedisProcess

pytestmark = pytest.mark.slow
PATIENT_S = 5.0  # these tests are about answers, not about how fast they come
TENANT_BUCKET, KEY_BUCKET = "tenant", "key"


def fresh_tenant() -> str:
    return f"ten_{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def buckets(shared_redis: RedisProcess) -> SharedBuckets:
    return SharedBuckets(shared_redis.url, budget_s=PATIENT_S)


@pytest.fixture(scope="module")
def server(shared_redis: RedisProcess) -> redis.Redis:
    return redis.Redis(unix_socket_path=f"{shared_redis.folder}/redis")


@dataclass
class Model:
    """The pure algorithm on several buckets, by whatever clock it is told."""

    states: dict[str, State] = field(default_factory=dict)

    def charge(self, charges: list[Charge], debts: list[int], now: int) -> tuple[bool, list[State]]:
        due = []
        for each, debt in zip(charges, debts, strict=True):
            known = gcra.time_due(each.rate, self.states.get(each.name), now)
            owed = gcra.time_due(each.rate, (now + debt, 0), now)
            due.append(max(known, owed))
        charged = [gcra.charge(each.rate, before, each.cost, now) for each, before in zip(charges, due, strict=True)]
        passed = None not in charged
        for each, before, after in zip(charges, due, charged, strict=True):
            self.states[each.name] = gcra.pack(each.rate, after if passed and after is not None else before)
        return passed, [self.states[each.name] for each in charges]

    def refund(self, refunds: list[Refund], now: int) -> None:
        for refund in refunds:
            rate, name = refund.receipt.rate, refund.receipt.name
            due = gcra.time_due(rate, self.states.get(name), now)
            until = gcra.unpack(rate, refund.receipt.until)
            self.states[name] = gcra.pack(rate, gcra.refund(rate, due, refund.cost, now, charged_until=until))


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    value = draw(st.one_of(st.integers(1, 100), st.integers(1, 10**12)))
    return Rate(value, draw(st.integers(1, value)))


CALL = st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.booleans())


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(rates(), rates()), st.lists(CALL, min_size=1, max_size=12))
def test_the_script_says_what_the_algorithm_says(
    buckets: SharedBuckets, both: tuple[Rate, Rate], calls: list[tuple[int, int, int, bool]]
) -> None:
    """Costs as percentages of the bursts, so that bounds are met; half of the calls bring refunds or debts."""
    tenant, model = fresh_tenant(), Model()
    refunds: list[Refund] = []
    for percent, other_percent, third, with_debt in calls:
        costs = [-(-rate.burst * share // 100) for rate, share in zip(both, (percent, other_percent), strict=True)]
        charges = [
            Charge(name, rate, cost) for name, rate, cost in zip((TENANT_BUCKET, KEY_BUCKET), both, costs, strict=True)
        ]
        debts = [third * SECOND // 10 if with_debt else 0, 0]
        passed, now, *times = buckets.run(tenant, charges, refunds, debts)
        model.refund(refunds, now)
        assert (bool(passed), list(zip(times[::2], times[1::2], strict=True))) == model.charge(charges, debts, now)
        refunds = []
        if passed:
            outcome = buckets.charge(tenant, [Charge(TENANT_BUCKET, both[0], 1)])
            if outcome.passed:
                model.states[TENANT_BUCKET] = outcome.receipts[0].until
                refunds = [Refund(outcome.receipts[0], 1)]


def test_all_are_charged_or_none(buckets: SharedBuckets) -> None:
    tenant, wide, narrow = fresh_tenant(), Rate(60, 10), Rate(60, 2)
    ask = [Charge(TENANT_BUCKET, wide, 1), Charge(KEY_BUCKET, narrow, 1)]
    assert [buckets.charge(tenant, ask).passed for _ in range(5)] == [True, True, False, False, False]
    look = buckets.charge(tenant, [Charge(TENANT_BUCKET, wide, 0)])
    assert (look.passed, look.readings[0].remaining, look.receipts) == (True, 8, ())


def test_a_refusal_says_exactly_when(buckets: SharedBuckets) -> None:
    tenant = fresh_tenant()
    buckets.charge(tenant, [Charge(TENANT_BUCKET, Rate(60, 10), 10)])
    refused = buckets.charge(tenant, [Charge(TENANT_BUCKET, Rate(60, 10), 3)])
    assert not refused.passed
    assert 2.5 * SECOND < refused.readings[0].wait <= 3 * SECOND
    assert 9 * SECOND < refused.readings[0].full_in <= 10 * SECOND


def test_n_64_r_18_a_time_from_a_clock_far_ahead_locks_nobody_out(buckets: SharedBuckets, server: redis.Redis) -> None:
    tenant, rate = fresh_tenant(), Rate(600, 10)
    seconds, micros = server.time()
    server.set(f"lorikeet:{{{tenant}}}:{TENANT_BUCKET}", f"{seconds * SECOND + micros + HOUR}:0")
    refused = buckets.charge(tenant, [Charge(TENANT_BUCKET, rate, 1)])
    assert (refused.passed, refused.readings[0].wait) == (False, SECOND // 10)
    threading.Event().wait(0.11)
    assert buckets.charge(tenant, [Charge(TENANT_BUCKET, rate, 1)]).passed


def test_a_bucket_that_is_full_again_is_gone(buckets: SharedBuckets, server: redis.Redis) -> None:
    tenant = fresh_tenant()
    buckets.charge(tenant, [Charge(TENANT_BUCKET, Rate(6000, 10), 10)])
    assert 50 < server.pttl(f"lorikeet:{{{tenant}}}:{TENANT_BUCKET}") <= 101
    threading.Event().wait(0.11)
    assert server.keys(f"*{tenant}*") == []


def test_n_65_of_fifty_at_once_as_many_pass_as_fit_and_a_refund_lets_the_next_in(
    buckets: SharedBuckets,
) -> None:
    tenant, rate = fresh_tenant(), Rate(1000, 1000)
    passed: Counter[bool] = Counter()
    receipts: list[Receipt] = []

    def ask() -> None:
        outcome = buckets.charge(tenant, [Charge(TENANT_BUCKET, rate, 99)])
        passed[outcome.passed] += 1
        receipts.extend(outcome.receipts)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == {True: 10, False: 40}
    assert not buckets.charge(tenant, [Charge(TENANT_BUCKET, rate, 99)]).passed
    assert buckets.charge(tenant, [Charge(TENANT_BUCKET, rate, 99)], refunds=[Refund(receipts[0], 90)]).passed
