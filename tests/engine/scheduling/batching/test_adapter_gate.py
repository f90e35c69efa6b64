"""Which adapters may be in the batch: the cap, the arena, loads that nobody waits for, and a tenant's own share."""

from __future__ import annotations

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Residency
from lorikeet_engine.scheduling.batching.adapter_gate import AdapterGate, AdapterWait
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

ONE = 4  # grains of an adapter


def adapters_per_step(engine: SteppedEngine) -> int:
    return max(len({row.adapter for row in plan.rows if row.adapter}) for plan in engine.plans)


def residency(n_adapters: int, *digests: str) -> AdapterResidency:
    """Room for so many; the named ones lie in host memory, wanted by somebody."""
    made = AdapterResidency(n_grains=n_adapters * ONE, grain_bytes=32, host_bytes=10_000, max_loading=9)
    for digest in digests:
        made.want(AdapterKey("tenant", digest), 0.0)
    for key in made.take_loads():
        made.on_loaded(key, ONE, 0.0)
    return made


def gate(of: AdapterResidency, *, max_adapters: int = 9, share: float = 1.0) -> AdapterGate:
    return AdapterGate(of, max_adapters=max_adapters, tenant_arena_share=share)


def admit(gate: AdapterGate, of: AdapterResidency, name: str, digest: str) -> str:
    """Admit a request as the starter does; the answer in a word."""
    answer = gate.admit(request(name, adapter=digest), 0.0)
    if isinstance(answer, AdapterWait):
        return answer.value
    if answer is not None:
        of.on_placed(answer.key)
    return "yes"


def test_an_adapter_counts_once_however_many_requests_use_it_and_until_the_last_of_them_ends() -> None:
    room = residency(9, "a", "b", "c")
    doors = gate(room, max_adapters=2)
    users = [request(f"a{i}", adapter="a") for i in range(3)]
    for one in users:
        answer = doors.admit(one, 0.0)
        if answer and not isinstance(answer, AdapterWait):
            room.on_placed(answer.key)
    assert admit(doors, room, "b", "b") == "yes"
    for one in users:
        assert admit(doors, room, "c", "c") == "cap"
        doors.leave(one)
    assert admit(doors, room, "c", "c") == "yes"
    room.audit()


def test_what_is_missing_is_told_and_nothing_changes() -> None:
    room = residency(2, "a", "b", "c")
    doors = gate(room)
    assert admit(doors, room, "x", "unknown") == "loading"
    room.want(AdapterKey("tenant", "late"), 0.0)
    assert room.take_loads() == [AdapterKey("tenant", "late")]
    assert admit(doors, room, "x", "late") == "loading"
    assert [admit(doors, room, digest, digest) for digest in "abc"] == ["yes", "yes", "room"]
    room.drain(AdapterKey("tenant", "a"))
    assert admit(doors, room, "x", "a") == "draining"
    assert sorted((key.digest, pins) for key, _, _, pins, _ in room.overview() if pins) == [("a", 1), ("b", 1)]
    room.audit()


def test_the_base_model_needs_no_adapter() -> None:
    room = residency(1)
    assert gate(room, max_adapters=1).admit(request("r"), 0.0) is None


def test_a_tenants_share_of_the_arena_is_its_own_limit_but_one_large_adapter_may_run_alone() -> None:
    room = residency(8, "a", "b", "c")
    doors = gate(room, share=0.25)
    first = request("first", adapter="a")
    doors.admit(first, 0.0)
    room.on_placed(AdapterKey("tenant", "a"))
    assert admit(doors, room, "second", "b") == "yes"
    assert admit(doors, room, "third", "c") == "share"
    tight = gate(residency_ := residency(8, "a", "b"), share=0.05)
    assert [admit(tight, residency_, digest, digest) for digest in "ab"] == ["yes", "share"]


def test_the_cap_counts_a_prompt_that_is_half_computed() -> None:
    """It has no row while others use up the budget, and yet the next step will have it."""
    engine = stepped_engine(max_adapters_per_step=2, arena_grains=10 * ONE, max_num_batched_tokens=12, n_blocks=60)
    engine.submit(request("long", n_prompt=50, adapter="a"))
    engine.step_until(lambda: "long" in engine.admitted)
    engine.submit(*[request(name, n_prompt=2, adapter=name) for name in "bcd"])
    while "long" not in engine.tokens:
        engine.step()
        running = {one.adapter for one in engine.requests.values() if one.request_id in engine.kv.block_tables()}
        assert len(running) <= 2
    engine.drain()
    assert adapters_per_step(engine) == 2


def test_a_candidate_without_blocks_takes_no_place_under_the_cap() -> None:
    """Two adapters a step: `big` fits under the cap but lacks blocks, so `small`, tried after it, takes the place."""
    engine = stepped_engine(n_blocks=17, max_adapters_per_step=2, arena_grains=10 * ONE)
    engine.submit(request("running", n_prompt=9, max_tokens=20, adapter="a"))
    engine.step_until(lambda: engine.tokens)
    engine.submit(request("big", n_prompt=55, max_tokens=5, adapter="b"), request("small", n_prompt=2, adapter="c"))
    engine.step(2)
    assert "small" in engine.admitted
    assert "big" not in engine.admitted
    assert engine.residency.state(AdapterKey("tenant", "b")) is Residency.HOST, "nor a place in the arena"
    engine.drain()


def test_a_load_holds_nobody_up_and_who_waits_for_it_keeps_its_place() -> None:
    engine = stepped_engine(load_delay=5, max_num_seqs=2)
    engine.submit(request("loading", adapter="red"), *[request(f"base {i}", max_tokens=2) for i in range(8)])
    engine.step()
    assert list(engine.admitted) == ["base 0", "base 1"]
    engine.step_until(lambda: "loading" in engine.admitted)
    assert "base 7" not in engine.admitted
    engine.drain()


def test_loads_start_when_requests_are_queued_not_when_their_turn_comes() -> None:
    engine = stepped_engine(max_num_seqs=1, load_delay=3)
    engine.submit(request("running", max_tokens=20), request("next", adapter="red"))
    engine.step(5)
    assert engine.residency.state(AdapterKey("tenant", "red")) is Residency.HOST
    engine.step_until(lambda: "running" in engine.finished)
    assert engine.step() is not None
    assert "next" in engine.admitted
    engine.drain()


def test_many_adapters_load_a_few_at_a_time_the_first_wanted_first() -> None:
    engine = stepped_engine(max_loading=2, load_delay=3, arena_grains=40, max_adapters_per_step=8)
    engine.submit(*[request(name, adapter=name) for name in "abcde"])
    engine.step()
    assert [key.digest for key in engine.engine.loader.started] == ["a", "b"]
    engine.drain()
    assert [key.digest for key in engine.engine.loader.started] == list("abcde")


def test_an_adapter_in_use_is_never_evicted_and_an_idle_one_makes_room_at_once() -> None:
    engine = stepped_engine(arena_grains=2 * ONE)
    engine.submit(request("busy", max_tokens=25, adapter="a"), request("brief", max_tokens=2, adapter="b"))
    engine.step_until(lambda: "brief" in engine.finished)
    engine.submit(request("next", max_tokens=4, adapter="c"))
    engine.step(2)
    assert "next" in engine.admitted
    assert engine.residency.state(AdapterKey("tenant", "a")) is Residency.RESIDENT
    assert engine.residency.evictions["room"] == 1
    engine.drain()


def test_a_reload_from_host_memory_reads_no_disk() -> None:
    engine = stepped_engine(arena_grains=ONE)
    for turn in range(3):
        for digest in "ab":
            engine.submit(request(f"{digest}{turn}", adapter=digest))
            engine.drain()
    assert len(engine.engine.loader.started) == 2
    assert engine.residency.loads["disk"] == 2
    assert engine.residency.loads["host"] == 4


def test_a_tenants_adapters_beyond_its_share_wait_and_other_tenants_do_not() -> None:
    """Three of four places for one tenant; its fourth adapter is no reason for anybody to make way."""
    engine = stepped_engine(arena_grains=4 * ONE, max_adapters_per_step=8, tenant_arena_share=0.75)
    engine.submit(*[request(name, max_tokens=20, adapter=name, tenant="many") for name in "abcd"])
    engine.step(8)
    assert set(engine.admitted) == set("abc")
    assert not any((engine.residency.state(AdapterKey("many", name)) is Residency.DRAINING) for name in "abc")
    engine.submit(request("other", adapter="x", tenant="few"))
    engine.step(2)
    assert "other" in engine.admitted
    engine.drain()


def test_waiting_for_an_adapter_is_measured_from_the_first_time_it_was_missed() -> None:
    engine = stepped_engine(load_delay=6)
    engine.submit(request("r", adapter="red"))
    engine.drain()
    assert engine.counters.longest_adapter_wait_s == engine.counters.adapter_stall_s == 6.0
    engine.submit(request("again", adapter="red"))
    engine.drain()
    assert engine.counters.adapter_stall_s == 6.0
