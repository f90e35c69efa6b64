"""Who waited too long goes first: adapters drain and blocks gather for it, and others lose nothing they need not."""

from __future__ import annotations

from collections.abc import Iterable

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import Residency
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.request import NEVER
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

ONE_ADAPTER = 4  # grains
PATIENCE_S = 3


def key(digest: str, tenant: str = "tenant") -> AdapterKey:
    return AdapterKey(tenant, digest)


def draining(engine: SteppedEngine, digests: Iterable[str]) -> set[str]:
    return {digest for digest in digests if (engine.residency.state(key(digest)) is Residency.DRAINING)}


def full_arena(**settings: object) -> SteppedEngine:
    """Two adapters fill the arena, with answers of 30 and 12 tokens to go."""
    engine = stepped_engine(n_blocks=100, arena_grains=2 * ONE_ADAPTER, **settings)
    engine.submit(request("long", max_tokens=30, adapter="red"), request("short", max_tokens=12, adapter="blue"))
    engine.step_until(lambda: len(engine.tokens) == 2)
    return engine


def test_only_the_adapter_that_ends_soonest_drains_and_nobody_new_starts_on_it() -> None:
    engine = full_arena()
    engine.submit(request("rare", adapter="green"))
    engine.step(PATIENCE_S + 2)
    assert draining(engine, ("red", "blue")) == {"blue"}
    engine.submit(request("blue again", adapter="blue"), request("red again", adapter="red"))
    engine.step_until(lambda: "rare" in engine.admitted, max_steps=12)
    assert "red again" in engine.admitted
    assert "blue again" not in engine.admitted
    assert not draining(engine, ("red",))
    engine.drain()
    assert len(engine.finished) == 5


def test_nothing_drains_before_patience_is_over() -> None:
    engine = full_arena()
    engine.submit(request("rare", adapter="green"))
    engine.step(PATIENCE_S)
    assert engine.residency.state(key("green")) is Residency.HOST
    assert draining(engine, ("red", "blue")) == set()
    engine.step()
    assert draining(engine, ("red", "blue")) == {"blue"}


def test_an_adapter_too_large_for_one_place_drains_as_many_as_it_needs() -> None:
    engine = full_arena()
    engine.engine.loader.n_grains = 2 * ONE_ADAPTER
    engine.submit(request("rare", adapter="huge"))
    engine.step(PATIENCE_S + 3)
    assert draining(engine, ("red", "blue")) == {"red", "blue"}
    engine.drain()
    assert set(engine.finished) == {"long", "short", "rare"}


def test_the_room_that_drained_is_kept_for_the_barrier_and_not_given_to_another() -> None:
    """`huge` needs both places. The first that comes free would suit `small`, who has to wait."""
    engine = full_arena()
    loader = engine.engine.loader
    loader.n_grains = 2 * ONE_ADAPTER
    engine.submit(request("rare", adapter="huge"))
    engine.step(PATIENCE_S + 3)
    loader.n_grains = ONE_ADAPTER
    engine.submit(request("small", adapter="small", tenant="another"))
    engine.step_until(lambda: "short" in engine.finished)
    engine.step(3)
    assert engine.residency.ledger[MemoryState.RESERVED] == ONE_ADAPTER * 32
    assert "small" not in engine.admitted
    engine.step_until(lambda: "small" in engine.admitted)
    assert engine.order_of_starts()[2:] == ["rare", "small"]
    engine.drain()


def test_a_full_step_keeps_the_next_place_for_the_barriers_adapter() -> None:
    """Room in the arena for all, but two adapters a step: the cap, not the arena, is what the barrier lacks."""
    engine = stepped_engine(n_blocks=100, arena_grains=10 * ONE_ADAPTER, max_adapters_per_step=2)
    engine.submit(request("long", max_tokens=30, adapter="red"), request("short", max_tokens=12, adapter="blue"))
    engine.step_until(lambda: len(engine.tokens) == 2)
    engine.submit(request("rare", adapter="green"))
    engine.step(PATIENCE_S + 2)
    assert draining(engine, ("red", "blue")) == {"blue"}
    engine.submit(request("other", adapter="white", tenant="another"))
    engine.step_until(lambda: "short" in engine.finished)
    engine.step(2)
    assert engine.order_of_starts()[2:] == ["rare"]
    engine.drain()


def test_when_the_barrier_is_aborted_what_was_kept_for_it_is_free_at_once() -> None:
    engine = full_arena()
    engine.engine.loader.n_grains = 2 * ONE_ADAPTER
    engine.submit(request("rare", adapter="huge"))
    engine.step_until(lambda: engine.residency.ledger[MemoryState.RESERVED])
    assert draining(engine, ("red", "blue"))
    engine.loop.abort("rare")
    assert engine.residency.ledger[MemoryState.RESERVED] == 0
    assert draining(engine, ("red", "blue")) == set()
    engine.drain()


def test_an_aborted_barrier_leaves_nothing_behind_on_an_engine_that_falls_idle() -> None:
    engine = full_arena()
    engine.engine.loader.n_grains = 2 * ONE_ADAPTER
    engine.submit(request("rare", adapter="huge"))
    engine.step_until(lambda: "short" in engine.finished)
    engine.loop.abort("rare")
    engine.drain()


def test_a_barrier_that_started_leaves_no_adapter_draining() -> None:
    engine = stepped_engine(n_blocks=100, arena_grains=10 * ONE_ADAPTER, max_adapters_per_step=1)
    engine.submit(request("first", max_tokens=12, adapter="red"))
    engine.step_until(lambda: engine.tokens)
    engine.submit(request("rare", adapter="green"))
    engine.step_until(lambda: "rare" in engine.admitted)
    assert draining(engine, ("red", "green")) == set()
    engine.drain()


def test_a_barrier_that_expires_or_fails_makes_room_again() -> None:
    engine = full_arena(ttft_deadline_s=8.0)
    engine.submit(request("rare", adapter="green"))
    engine.step_until(lambda: draining(engine, ("blue",)))
    engine.step_until(lambda: "rare" in engine.errors, max_steps=8)
    assert engine.errors["rare"].code == "deadline_exceeded"
    assert draining(engine, ("red", "blue")) == set()
    engine.drain()


def test_while_the_barrier_lacks_blocks_nobody_passes_it() -> None:
    engine = stepped_engine(n_blocks=13)
    engine.submit(request("running", n_prompt=9, max_tokens=20))
    engine.step()
    engine.submit(request("big", n_prompt=35))
    engine.step()
    engine.submit(*[request(f"{i}", n_prompt=3, max_tokens=6, tenant="another") for i in range(12)])
    engine.step(PATIENCE_S)
    passed = len(engine.admitted)
    assert passed > 1, "before patience is over, smaller ones run"
    engine.step_until(lambda: "big" in engine.admitted)
    assert len(engine.admitted) <= passed + 4
    engine.drain()


def test_while_the_barrier_lacks_its_adapter_others_go_on() -> None:
    engine = full_arena()
    engine.submit(request("rare", adapter="green"))
    engine.step(PATIENCE_S + 2)
    engine.submit(request("base"), request("red too", adapter="red"))
    engine.step()
    assert {"base", "red too"} <= engine.admitted.keys()
    assert "rare" not in engine.admitted
    engine.drain()


def test_the_one_that_was_blocked_first_is_the_barrier() -> None:
    engine = stepped_engine(n_blocks=100, arena_grains=ONE_ADAPTER)
    engine.submit(request("first", max_tokens=12, adapter="red"))
    engine.step_until(lambda: engine.tokens)
    engine.submit(request("green", adapter="green"))
    engine.step(2)
    engine.submit(request("blue", adapter="blue", tenant="another"))
    engine.drain()
    assert engine.order_of_starts() == ["first", "green", "blue"]


def test_who_waited_for_whatever_reason_goes_first_once_it_aged() -> None:
    """A tenant that owes much is passed by one that owes nothing, but not for ever."""
    for aging_s, is_late in ((20.0, False), (NEVER, True)):
        engine = stepped_engine(max_num_seqs=1, aging_s=aging_s)
        engine.submit(request("debt", n_prompt=30, max_tokens=30, tenant="heavy"))
        engine.step_until(lambda engine=engine: engine.tokens)  # type: ignore[misc]
        engine.submit(request("next", n_prompt=1, max_tokens=1, tenant="heavy"))
        engine.submit(*[request(f"light {i}", n_prompt=1, max_tokens=4, tenant="light") for i in range(14)])
        engine.drain()
        before = engine.order_of_starts().index("next")
        assert before == 1 or (is_late and before > 5)


def test_a_barrier_that_lacks_only_its_tenants_own_share_keeps_nothing_from_others() -> None:
    """First it lacks room in the arena, so that the other adapter drains; then only a seat of its tenant's own."""
    engine = stepped_engine(
        n_blocks=200,
        arena_grains=ONE_ADAPTER,
        max_model_len=400,
        max_num_seqs=16,
        max_num_batched_tokens=32,
        tenant_seat_share=0.125,
        aging_s=5.0,
    )
    engine.submit(*[request(f"x{i}", adapter="x", tenant="x", max_tokens=30 - 10 * i) for i in range(2)])
    engine.step(4)
    engine.submit(request("rare", adapter="rare", max_tokens=1))
    engine.step_until(lambda: engine.residency.state(key("x", "x")) is Residency.DRAINING, max_steps=10)
    engine.submit(*[request(f"own {i}", max_tokens=250) for i in range(2)])
    engine.step(3)
    assert {"own 0", "own 1"} <= engine.admitted.keys(), "both seats of the tenant are taken"
    assert engine.residency.state(key("x", "x")) is Residency.RESIDENT
    assert engine.residency.ledger[MemoryState.RESERVED] == 0
    engine.step_until(lambda: "x0" in engine.finished)
    engine.submit(request("x again", adapter="x", tenant="x", max_tokens=1))
    engine.step(4)
    assert "x again" in engine.finished
    engine.drain()
