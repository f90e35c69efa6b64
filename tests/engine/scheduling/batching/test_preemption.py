"""When KV memory runs out: who gives way, how, and what it costs whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import PrefixChain
from lorikeet_engine.memory.ledger import MemoryState, Owner
from lorikeet_engine.scheduling.batching.preemption import MAX_PREEMPTIONS, SPARED_STEPS, SeatControl, VictimChoice
from lorikeet_engine.scheduling.limits import PreemptionMode, SchedulerLimits
from lorikeet_engine.scheduling.request import Request, Stage
from lorikeet_engine.scheduling.waiting.fairness import TenantAccount
from lorikeet_engine.scheduling.waiting.margin import Margin
from tests.support.scripted_engine_parts import COST, PROFILE, request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

BLOCK = 4


def limits_with(mode: PreemptionMode) -> SchedulerLimits:
    return SchedulerLimits(
        max_model_len=400,
        max_num_seqs=8,
        max_num_batched_tokens=16,
        max_adapters_per_step=4,
        max_queued_requests=10,
        eos_token_ids=frozenset(),
        vocab=1000,
        preemption=mode,
    )


class Bench:
    """Running requests by hand: their blocks are real, their history is as a test says."""

    def __init__(self, *, mode: PreemptionMode = "auto", n_host_slots: int = 100, host_bandwidth: float = 1e5) -> None:
        self.kv = KvManager(n_blocks=200, block_size=BLOCK, block_bytes=64, n_host_slots=n_host_slots)
        profile = replace(PROFILE, host_bandwidth=host_bandwidth)
        self.victims = VictimChoice(limits_with(mode), kv=self.kv, cost=COST, profile=profile)
        self.accounts: dict[str, TenantAccount] = {}
        self.running: list[Request] = []

    def add(self, name: str, *, n_computed: int = 40, n_output: int = 10, tenant: str = "t", **more: int) -> Request:
        one = request(name, n_prompt=n_computed + 1 - n_output, max_tokens=40, tenant=tenant)
        one.account = self.accounts.setdefault(tenant, TenantAccount(tenant, len(self.accounts), Margin(10.0)))
        one.tokens += [1] * n_output
        one.n_computed, one.stage, one.serial = n_computed, Stage.RUNNING, len(self.running)
        for field, value in more.items():
            setattr(one, field, value)
        admit(self.kv, one)
        self.running.append(one)
        return one

    def choice(self, *, step_id: int = 1000) -> str | None:
        victim = self.victims.choose(self.running, step_id=step_id)
        return victim.request_id if victim else None


def admit(kv: KvManager, one: Request) -> None:
    chain = PrefixChain(one.request_id.encode() * 64, kv.block_size)
    kv.admit(one.request_id, Owner(one.tenant), one.n_computed, chain, kv.lookup(chain, one.n_computed))
    kv.grow(one.request_id, one.n_computed)


def test_the_oldest_is_never_chosen_however_cheap_it_is() -> None:
    bench = Bench()
    bench.add("oldest", n_computed=4, n_output=1)
    assert bench.choice() is None
    bench.add("dear", n_computed=100, n_output=39, n_preemptions=9)
    assert bench.choice() == "dear"


def test_among_equals_the_youngest_gives_way() -> None:
    bench = Bench()
    for name in ("oldest", "middle", "youngest"):
        bench.add(name)
    assert bench.choice() == "youngest"


def test_whoever_was_preempted_often_or_only_just_admitted_is_spared_while_another_can_be_found() -> None:
    bench = Bench()
    bench.add("oldest")
    bench.add("other")
    bench.add("often", n_preemptions=MAX_PREEMPTIONS)
    bench.add("new", admitted_step=1000 - SPARED_STEPS + 1)
    assert bench.choice() == "other"
    assert bench.choice(step_id=1001) == "new", "it has had its steps"
    bench.running.remove(bench.running[1])
    assert bench.choice() in ("often", "new"), "there is nobody else"


def test_one_that_is_nearly_done_goes_on() -> None:
    bench = Bench()
    bench.add("oldest")
    bench.add("half done", n_output=20)
    bench.add("nearly done", n_output=39)
    assert bench.choice() == "half done"


def test_the_tenant_that_received_more_gives_way() -> None:
    bench = Bench()
    bench.add("oldest", tenant="modest")
    bench.add("greedy", tenant="greedy")
    bench.add("modest", tenant="modest")
    assert bench.choice() == "modest"
    bench.accounts["greedy"].service = 100.0
    assert bench.choice() == "greedy"


def test_blocks_that_others_share_are_no_gain() -> None:
    bench = Bench()
    bench.add("oldest")
    sharing = bench.add("sharing")
    bench.add("alone", n_computed=40)
    assert bench.choice() == "alone"
    bench.running.pop()
    bench.kv.fork(sharing.request_id, "child", Owner("t"), 40, 40)
    bench.add("small", n_computed=20)
    assert bench.victims.assess(sharing).n_blocks == 0
    assert bench.choice() == "small"


def test_lost_work_counts_against_a_victim() -> None:
    """Both would free ten blocks; those that come after twenty shared ones cost more to compute."""
    bench = Bench(mode="recompute")
    bench.add("oldest")
    bench.add("short", n_computed=40)
    long = bench.add("long", n_computed=120)
    assert bench.choice() == "long", "thirty blocks are worth it"
    bench.kv.fork("long", "child", Owner("t"), 80, 80)
    assert bench.victims.assess(long).n_blocks == 10
    assert bench.choice() == "short"


@pytest.mark.parametrize(
    ("bandwidth", "mode", "n_host_slots", "way"),
    [
        (1e5, "auto", 100, "swap"),
        (1e3, "auto", 100, "recompute"),
        (1e5, "recompute", 100, "recompute"),
        (1e3, "swap", 100, "swap"),
        (1e5, "auto", 9, "recompute"),
        (1e5, "swap", 9, "recompute"),
    ],
)
def test_swap_or_recompute_is_whichever_costs_less_of_what_is_configured_and_has_room(
    bandwidth: float, mode: PreemptionMode, n_host_slots: int, way: str
) -> None:
    """Ten blocks, so nine slots are too few."""
    bench = Bench(mode=mode, host_bandwidth=bandwidth, n_host_slots=n_host_slots)
    assert bench.victims.way(bench.add("r")) == way


@pytest.mark.parametrize("mode", ["auto", "swap"])
def test_who_has_nothing_to_swap_out_is_computed_again(mode: PreemptionMode) -> None:
    """One has computed nothing yet, the blocks of the other are all shared."""
    bench = Bench(mode=mode)
    new, parent = bench.add("new", n_computed=0, n_output=0), bench.add("parent")
    bench.kv.fork("parent", "child", Owner("t"), 40, 40)
    for victim in (new, parent):
        assert bench.victims.assess(victim).n_blocks == 0
        assert bench.victims.way(victim) == "recompute"


def test_only_what_nobody_else_holds_has_to_be_computed_again() -> None:
    """Of thirty blocks twenty are shared: they stay in the prefix cache."""
    bench = Bench(mode="recompute")
    alone, sharing = bench.add("alone", n_computed=40), bench.add("sharing", n_computed=120)
    everything = bench.victims.assess(sharing).seconds
    bench.kv.fork("sharing", "child", Owner("t"), 80, 80)
    shared = bench.victims.assess(sharing)
    assert shared.n_blocks == bench.victims.assess(alone).n_blocks == 10
    assert shared.seconds < everything / 2
    assert shared.seconds >= bench.victims.assess(alone).seconds, "those that are left come last and cost no less"


def test_the_seats_shrink_once_for_a_burst_and_come_back_one_by_one_in_quiet() -> None:
    seats = SeatControl(10)
    for now in (0.0, 0.1, 0.2):
        seats.on_preemption(now, n_running=10)
    assert seats.seats == 8
    seats.on_preemption(5.0, n_running=6)
    assert seats.seats == 4, "of those who ran, not of what was allowed"
    seats.tick(14.9)
    assert seats.seats == 4
    for now in (15.0, 15.1, 25.0, 35.0):
        seats.tick(now)
    assert seats.seats == 7
    for _ in range(100):
        now += 10.0
        seats.tick(now)
    assert seats.seats == 10
    for i in range(40):
        seats.on_preemption(2000.0 + 2 * i, n_running=1)
    assert seats.seats == 1


def test_after_a_preemption_the_doors_stay_shut_until_there_is_room_for_all_who_run() -> None:
    seats = SeatControl(10)
    assert seats.open_if(n_available=0, n_needed=9, n_running=5)
    seats.on_preemption(0.0, n_running=5)
    assert not seats.open_if(n_available=17, n_needed=10, n_running=4)
    assert seats.open_if(n_available=18, n_needed=10, n_running=4)
    assert seats.open_if(n_available=0, n_needed=10, n_running=4), "open until the next preemption"
    seats.on_preemption(0.0, n_running=5)
    assert seats.open_if(n_available=0, n_needed=10, n_running=0), "nobody runs whom it could displace"


def crowded(mode: str, *, n_host_slots: int = 40, n_blocks: int = 13, **settings: object) -> SteppedEngine:
    """Three requests that together need more than twice the pool (unless it is made larger)."""
    engine = stepped_engine(n_blocks=n_blocks, n_host_slots=n_host_slots, preemption=mode, **settings)
    engine.submit(*[request(f"{i}", n_prompt=9, max_tokens=30) for i in range(3)])
    return engine


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("mode", ["swap", "recompute", "auto"])
def test_who_gave_way_goes_on_with_the_same_tokens(mode: str, caching: bool) -> None:
    engine = crowded(mode, enable_prefix_caching=caching)
    engine.drain()
    way = "recompute" if mode == "recompute" else "swap"
    other = ({"swap", "recompute"} - {way}).pop()
    assert engine.counters.preemptions[way] > 0
    assert engine.counters.preemptions[other] == 0
    assert engine.requests["0"].n_preemptions == 0, "it was the oldest all the time"
    assert [len(engine.tokens[name]) for name in "012"] == [30, 30, 30]
    if way == "swap":
        assert 0 < engine.counters.swap_bytes["in"] <= engine.counters.swap_bytes["out"]
    else:
        assert engine.counters.swap_bytes.total() == 0
        assert engine.counters.recomputed_tokens > 0


def test_with_the_swap_pool_full_blocks_are_computed_again() -> None:
    engine = crowded("swap", n_host_slots=2)
    engine.drain()
    assert engine.counters.preemptions["recompute"] > 0
    assert engine.counters.preemptions["swap"] == 0


def test_swapped_blocks_are_in_flight_for_their_step_and_in_host_memory_after_it() -> None:
    engine = crowded("swap")
    engine.step_until(lambda: engine.counters.preemptions["swap"])
    n_out = len(engine.plans[-1].swap_outs)
    assert n_out > 0
    assert engine.kv.swap_ledger[MemoryState.USED] == n_out * engine.kv.block_bytes
    assert engine.kv.n_in_flight == 0
    assert engine.scheduler.n_swapped == 1
    engine.drain()


def test_blocks_on_their_way_are_waited_for_so_one_step_swaps_out_one_request() -> None:
    engine = stepped_engine(n_blocks=25, n_host_slots=40, preemption="swap", max_num_batched_tokens=60)
    engine.submit(*[request(f"{i}", n_prompt=12, max_tokens=30) for i in range(5)])
    while engine.loop.has_work:
        before = engine.counters.preemptions["swap"]
        engine.step()
        assert engine.counters.preemptions["swap"] - before <= 1
    assert engine.counters.preemptions["swap"] > 1
    engine.drain()


@pytest.mark.parametrize(("mode", "n_preempted"), [("recompute", 0), ("swap", 1)])
def test_nobody_gives_way_when_waiting_for_one_that_is_about_to_end_costs_less(mode: str, n_preempted: int) -> None:
    """The younger needs a fifth block when the older has three tokens to go. Swapping is cheaper than three steps."""
    engine = stepped_engine(n_blocks=8, n_host_slots=20, preemption=mode, max_num_batched_tokens=40)
    engine.engine.runner.step_s = 0.002
    engine.submit(request("older", n_prompt=6, max_tokens=7), request("younger", n_prompt=13, max_tokens=12))
    engine.step_until(lambda: "older" in engine.finished)
    assert engine.counters.preemptions[mode] == n_preempted
    assert (engine.counters.preemptions["wait"] > 0) is (n_preempted == 0)
    engine.drain()


def test_who_gave_way_comes_back_before_new_ones_and_nobody_enters_before_there_is_room() -> None:
    engine = crowded("recompute")
    engine.step_until(lambda: engine.counters.preemptions["recompute"])
    displaced = [name for name, one in engine.requests.items() if one.stage is Stage.PREEMPTED]
    engine.submit(*[request(f"new {i}", n_prompt=1, max_tokens=1, tenant="another") for i in range(4)])
    while any(engine.requests[name].stage is Stage.PREEMPTED for name in displaced):
        assert not engine.admitted.keys() & {f"new {i}" for i in range(4)}
        engine.step()
    engine.drain()


def test_who_gave_way_waits_for_room_for_all_who_run_and_not_only_for_its_own() -> None:
    """Two small ones go: its own blocks would fit now, but the others would push it out again at once."""
    engine = stepped_engine(n_blocks=40, preemption="recompute", max_num_batched_tokens=64)
    engine.submit(*[request(f"{i}", n_prompt=5, max_tokens=50, weight=100.0) for i in range(6)])
    engine.step()
    engine.submit(request("big", n_prompt=46, max_tokens=14, tenant="another"))
    engine.step_until(lambda: engine.requests["big"].n_preemptions)
    for name in "45":
        engine.loop.abort(name)
    needed = engine.kv.blocks_for(len(engine.requests["big"].tokens) + 1)
    assert needed + 2 <= engine.kv.n_available < needed + 2 * engine.scheduler.n_running
    assert engine.scheduler.n_running < engine.scheduler.seats
    engine.step()
    assert engine.requests["big"].stage is Stage.PREEMPTED
    engine.drain()


def test_preemptions_cost_seats() -> None:
    engine = crowded("recompute", max_num_seqs=8)
    engine.step_until(lambda: engine.counters.preemptions["recompute"])
    assert engine.scheduler.seats == 2
    engine.drain()
    engine.step(100)
    assert engine.scheduler.seats == 8


def test_what_is_computed_again_is_not_paid_for_again() -> None:
    services = []
    for mode, n_blocks in (("recompute", 13), ("swap", 13), ("recompute", 60)):
        engine = crowded(mode, n_blocks=n_blocks, enable_prefix_caching=False)
        engine.drain()
        assert (engine.counters.preemptions[mode] > 0) is (n_blocks == 13)
        services.append(engine.requests["0"].account.service)
    assert services == [3 * (9 + 2 * 30)] * 3


def test_a_prompt_that_is_half_computed_can_give_way_too() -> None:
    engine = stepped_engine(n_blocks=18, preemption="recompute", max_num_batched_tokens=8, max_model_len=80)
    engine.submit(request("old", n_prompt=4, max_tokens=40))
    engine.step()
    engine.submit(request("long", n_prompt=54, max_tokens=3))
    engine.step_until(lambda: engine.counters.preemptions["recompute"])
    assert "long" not in engine.tokens
    engine.drain()


def test_preemptions_per_request_stay_bounded_when_many_crowd_a_small_pool() -> None:
    """The spared ones are spared, so the burden is shared and everybody ends."""
    engine = stepped_engine(n_blocks=21, preemption="recompute")
    engine.submit(*[request(f"{i}", n_prompt=6, max_tokens=25) for i in range(20)])
    engine.drain()
    assert max(one.n_preemptions for one in engine.requests.values()) <= MAX_PREEMPTIONS + 1
    assert len(engine.finished) == 20
