"""Whose turn it is: service by weight, no credit for idleness, no way out of debt, and adapters' bytes in the price."""

from __future__ import annotations

from collections import Counter

import pytest

from lorikeet_engine.scheduling.scheduler import REFERENCE_BATCH
from lorikeet_engine.scheduling.waiting.fairness import LOOKAHEAD, FairQueue, Prices
from tests.support.scripted_engine_parts import COST, request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

SEATS, BUDGET, ANSWER = 4, 16, 8
ADAPTER_BYTES = 4 * 32
# The most that one choice commits the engine to: a step's tokens, or the answers of all seats, at their prices.
BOUND = 2 * max(BUDGET, 2 * SEATS * ANSWER)


class Backlog:
    """Keeps a number of requests waiting for each tenant, and counts the tokens that each received."""

    def __init__(self, weights: dict[str, float], **settings: object) -> None:
        self.engine: SteppedEngine = stepped_engine(
            n_blocks=100, max_num_seqs=SEATS, max_num_batched_tokens=BUDGET, max_queued_requests=1000, **settings
        )
        self.weights = weights
        self.serial = 0

    def fill(self, tenant: str, n: int = 6, *, n_prompt: int = 10, adapter: str = "") -> None:
        waiting = {load.tenant: load.waiting for load in self.engine.scheduler.tenants()}.get(tenant, 0)
        for _ in range(n - waiting):
            self.serial += 1
            name = f"{tenant} {self.serial}"
            weight = self.weights[tenant]
            prompt = tuple(1 + (self.serial * 37 + i) % 900 for i in range(n_prompt))
            self.engine.submit(
                request(name, prompt=prompt, max_tokens=ANSWER, tenant=tenant, weight=weight, adapter=adapter)
            )

    def served(self) -> Counter[str]:
        """Virtual tokens of prompts and answers by tenant, counted from the plans."""
        served: Counter[str] = Counter()
        for plan in self.engine.plans:
            for row in plan.rows:
                tenant = row.request_id.split()[0]
                served[tenant] += (0 if row.n_generated else len(row.token_ids)) + 2 * row.samples
        return served


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.0}, {"a": 0.5, "b": 1.5, "c": 1.0}])
def test_backlogged_tenants_are_served_by_weight_within_the_bound(weights: dict[str, float]) -> None:
    backlog = Backlog(weights)
    for _ in range(500):
        for tenant in weights:
            backlog.fill(tenant)
        backlog.engine.step()
        services = [backlog.engine.service_of(tenant) for tenant in weights]
        assert max(services) - min(services) <= BOUND / min(weights.values())
    served = backlog.served()
    for tenant, weight in weights.items():
        assert served[tenant] / served.total() == pytest.approx(weight / sum(weights.values()), rel=0.05)
    backlog.engine.drain()


def test_long_prompts_count_for_what_they_are() -> None:
    """Equal weights, prompts of 40 against 4 tokens: equal service, not equal numbers of requests."""
    backlog = Backlog({"long": 1.0, "short": 1.0})
    for _ in range(400):
        backlog.fill("long", n_prompt=40)
        backlog.fill("short", n_prompt=4)
        backlog.engine.step()
    served = backlog.served()
    assert served["long"] / served["short"] == pytest.approx(1.0, rel=0.06)
    started = Counter(name.split()[0] for name in backlog.engine.admitted)
    assert started["short"] > 2 * started["long"]
    backlog.engine.drain()


def test_the_bound_counts_whole_prompts() -> None:
    """Prompts of many steps against short ones: nobody gets further ahead than two of the long ones."""
    n_long = 48
    backlog = Backlog({"long": 1.0, "short": 1.0})
    for _ in range(400):
        backlog.fill("long", n_prompt=n_long)
        backlog.fill("short", n_prompt=4)
        backlog.engine.step()
        services = [backlog.engine.service_of(tenant) for tenant in ("long", "short")]
        assert max(services) - min(services) <= 2 * n_long + BOUND
    backlog.engine.drain()


def test_a_tenant_that_comes_back_has_saved_nothing_up() -> None:
    backlog = Backlog({"busy": 1.0, "rare": 1.0})
    for step in range(600):
        backlog.fill("busy")
        if step >= 300:
            backlog.fill("rare")
        backlog.engine.step()
        if step == 299:
            before = backlog.served()["busy"]
        if step == 360:
            gained = backlog.served()["busy"] - before
    assert gained > 0.4 * 60 * before / 300, "busy kept about half of its service from the first moment"
    late = backlog.served()["busy"] - before
    assert backlog.served()["rare"] == pytest.approx(late, rel=0.1)
    backlog.engine.drain()


def test_a_tenant_alone_starts_from_what_was_served_last_not_from_nothing() -> None:
    engine = stepped_engine()
    engine.submit(request("first", max_tokens=20, tenant="a"))
    engine.drain()
    paid = engine.requests["first"].account.service
    engine.submit(request("a again", tenant="a"), request("b comes", tenant="b"))
    assert engine.service_of("a") == paid
    assert engine.service_of("b") <= paid
    engine.drain()
    engine.submit(request("c comes to an idle engine", tenant="c"))
    assert engine.service_of("c") >= paid
    engine.drain()


def test_going_idle_for_a_moment_erases_no_debt() -> None:
    """`heavy` received much; after a pause `light` is still served first."""
    engine = stepped_engine(max_num_seqs=1)
    engine.submit(request("debt", n_prompt=30, max_tokens=30, tenant="heavy"), request("l0", tenant="light"))
    engine.step_until(lambda: "debt" in engine.finished)
    debt = engine.requests["debt"].account.service
    engine.submit(request("pause 1", tenant="light"))
    engine.step(3)
    engine.submit(request("h1", tenant="heavy"), *[request(f"l{i}", tenant="light") for i in (1, 2, 3)])
    assert engine.service_of("heavy") == debt
    engine.drain()
    assert engine.order_of_starts()[-1] == "h1"


def test_prompt_cached_and_answer_tokens_have_their_prices() -> None:
    engine = stepped_engine()
    engine.submit(request("cold", n_prompt=9, max_tokens=3))
    engine.drain()
    account = engine.requests["cold"].account
    assert account.service == 9 * 1.0 + 3 * 2.0
    engine.submit(request("warm", prompt=engine.requests["cold"].prompt, max_tokens=3))
    engine.drain()
    assert account.service == pytest.approx(15 + 8 * 0.1 + 1 * 1.0 + 3 * 2.0)


def test_a_weight_of_three_pays_a_third() -> None:
    engine = stepped_engine()
    engine.submit(request("r", n_prompt=9, max_tokens=3, weight=3.0))
    engine.drain()
    assert engine.requests["r"].account.service == pytest.approx(15 / 3)


@pytest.mark.parametrize("n_sharers", [1, 2, 4])
def test_an_adapters_bytes_are_paid_once_a_step_by_those_who_share_them(n_sharers: int) -> None:
    """A step reads them once, whoever uses them; their price is what so many answer tokens would have cost."""
    engine = stepped_engine(n_blocks=60, max_num_batched_tokens=40)
    engine.submit(*[request(f"{i}", n_prompt=5, max_tokens=6, adapter="red") for i in range(n_sharers)])
    engine.step_until(lambda: len(engine.tokens) == n_sharers)
    account = engine.requests["0"].account
    before = account.service
    engine.step()
    price = 2.0 * REFERENCE_BATCH / COST.weights_bytes
    assert account.service - before == pytest.approx(ADAPTER_BYTES * price + n_sharers * 2.0)
    engine.drain()


def test_tenants_with_adapters_of_their_own_pay_for_them() -> None:
    """Both are served equally by price, so the one whose adapter is read for it alone gets fewer tokens."""
    backlog = Backlog({"plain": 1.0, "tuned": 1.0})
    for _ in range(300):
        backlog.fill("plain")
        backlog.fill("tuned", adapter="red")
        backlog.engine.step()
    served = backlog.served()
    assert served["tuned"] < 0.85 * served["plain"]
    services = [backlog.engine.service_of(tenant) for tenant in ("plain", "tuned")]
    assert abs(services[0] - services[1]) <= BOUND
    backlog.engine.drain()


@pytest.mark.parametrize(("quantum", "first"), [(0.0, "other 1"), (5.0, "other 1"), (80.0, "local 1")])
def test_who_needs_no_further_adapter_may_go_first_within_the_quantum(quantum: float, first: str) -> None:
    """One seat comes free. `local`, whose adapter is in the batch, received some forty tokens more than `other`."""
    engine = stepped_engine(n_blocks=60, max_num_seqs=2, locality_quantum=quantum)
    engine.submit(request("other 0", n_prompt=1, max_tokens=14, tenant="other"))
    engine.submit(request("local 0", n_prompt=20, max_tokens=30, tenant="local", adapter="red"))
    engine.step(10)
    engine.submit(request("other 1", tenant="other", adapter="blue"), request("local 1", tenant="local", adapter="red"))
    engine.step_until(lambda: "other 0" in engine.finished)
    assert 15 < engine.service_of("local") - engine.service_of("other") < 60
    engine.step()
    assert engine.order_of_starts()[2:] == [first]
    engine.drain()


def test_the_quantum_delays_nobody_beyond_itself() -> None:
    weights = {"a": 1.0, "b": 1.0}
    backlog = Backlog(weights, locality_quantum=40.0, arena_grains=4, max_adapters_per_step=1)
    for _ in range(300):
        backlog.fill("a", adapter="red")
        backlog.fill("b")
        backlog.engine.step()
        services = [backlog.engine.service_of(tenant) for tenant in weights]
        assert abs(services[0] - services[1]) <= BOUND + 40
    backlog.engine.drain()


def test_accounts_of_tenants_that_are_gone_are_forgotten_those_in_debt_last() -> None:
    queue = FairQueue(quantum=0.0, deadline_s=10.0)
    debtor = queue.account("debtor", 1.0)
    debtor.charge(100.0)
    for i in range(10_000):
        queue.account(f"passer-by {i}", 1.0)
    assert queue.account("debtor", 1.0) is debtor
    assert len(queue._accounts) <= 4097


def test_prices_are_as_documented() -> None:
    assert (Prices().input, Prices().cached, Prices().output) == (1.0, 0.1, 2.0)
    assert LOOKAHEAD == 8


def test_idle_time_earns_one_small_credit_and_no_second_one_for_the_next_who_comes() -> None:
    credit = 20.0
    backlog = Backlog({"busy": 1.0, "first": 1.0, "second": 1.0}, idle_credit=credit)
    for _ in range(60):
        backlog.fill("busy")
        backlog.engine.step()
    busy = backlog.engine.service_of("busy")
    backlog.fill("first", 1)
    backlog.fill("second", 1)
    assert backlog.engine.service_of("first") == busy - credit
    assert backlog.engine.service_of("second") == busy - credit
    backlog.engine.drain()


def test_a_tenant_that_keeps_coming_back_gets_no_more_than_its_share_and_one_credit() -> None:
    credit = 100.0
    backlog = Backlog({"busy": 1.0, "hopping": 1.0}, idle_credit=credit)
    for _ in range(400):
        backlog.fill("busy")
        hops = {load.tenant for load in backlog.engine.scheduler.tenants()}
        if "hopping" not in hops:  # it was idle: here it is again, with as much as one step takes
            backlog.fill("hopping", 2)
        backlog.engine.step()
    served = backlog.served()
    assert served["hopping"] <= served["busy"] + credit + BOUND
    backlog.engine.drain()
