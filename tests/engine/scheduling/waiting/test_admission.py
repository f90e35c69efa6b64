"""Who may start: blocks for the whole prompt above a watermark, seats, and a tenant's own shares of them."""

from __future__ import annotations

import pytest

from lorikeet_engine.errors import ContextLengthExceeded
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import Residency
from lorikeet_engine.memory.ledger import MemoryState
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

BLOCK_BYTES = 64


def in_blocks(engine: SteppedEngine, state: MemoryState) -> int:
    return engine.kv.ledger[state] // BLOCK_BYTES


def test_a_started_prompt_is_promised_blocks_for_all_of_it_and_its_first_answer_token() -> None:
    engine = stepped_engine()
    engine.submit(request("r", n_prompt=32))
    engine.step()
    assert in_blocks(engine, MemoryState.USED) == 4, "the first sixteen tokens"
    assert in_blocks(engine, MemoryState.RESERVED) == 5
    engine.step()
    assert (in_blocks(engine, MemoryState.USED), in_blocks(engine, MemoryState.RESERVED)) == (8, 1)
    engine.drain()


def test_a_prompt_whose_first_chunk_fits_but_not_all_of_it_waits() -> None:
    """Two half computed prompts would otherwise stand in each other's way for ever."""
    engine = stepped_engine(n_blocks=17)
    engine.submit(request("first", n_prompt=36), request("second", n_prompt=28))
    engine.step(3)
    assert list(engine.admitted) == ["first"]
    assert engine.kv.n_available == 6
    engine.drain()
    assert engine.counters.preemptions.total() == 0


@pytest.mark.parametrize(("n_prompt", "starts"), [(115, True), (116, False)])
def test_beside_those_who_run_a_watermark_stays_free(n_prompt: int, starts: bool) -> None:
    """Of 32 blocks two are taken and one is the watermark; 29 blocks hold 115 tokens and the first of the answer."""
    engine = stepped_engine(max_model_len=200)
    engine.submit(request("running", n_prompt=5, max_tokens=3))
    engine.step()
    engine.submit(request("next", n_prompt=n_prompt, max_tokens=3))
    engine.step()
    assert ("next" in engine.admitted) is starts
    engine.drain()


def test_when_nobody_runs_there_is_no_watermark() -> None:
    engine = stepped_engine(max_model_len=200)
    engine.submit(request("all", n_prompt=120, max_tokens=8))
    engine.step()
    assert "all" in engine.admitted
    assert engine.kv.n_available <= 1
    engine.drain()


def test_cached_blocks_that_nobody_holds_are_room_and_those_of_the_hit_are_not_needed_twice() -> None:
    engine = stepped_engine(n_blocks=17)
    engine.submit(request("warm", n_prompt=40))
    engine.drain()
    cached = in_blocks(engine, MemoryState.CACHED)
    assert cached > 8
    engine.submit(request("again", prompt=engine.requests["warm"].prompt), request("other", n_prompt=12))
    engine.step(2)
    assert engine.admitted["again"].cached_tokens == 36
    assert "other" in engine.admitted
    engine.drain()


def test_a_smaller_request_passes_one_that_lacks_blocks() -> None:
    """As long as that one is not the barrier."""
    engine = stepped_engine(n_blocks=17)
    engine.submit(request("running", n_prompt=36, max_tokens=12))
    engine.step(3)
    engine.submit(request("big", n_prompt=28), request("small", n_prompt=3))
    engine.step()
    assert "small" in engine.admitted
    assert "big" not in engine.admitted
    engine.drain()


def test_only_so_many_of_a_tenant_are_looked_at_in_a_step() -> None:
    """Eight that do not fit hide the ninth; another tenant's is not hidden."""
    engine = stepped_engine(n_blocks=17, max_num_seqs=12)
    engine.submit(request("running", n_prompt=36, max_tokens=12))
    engine.step(3)
    engine.submit(*[request(f"big {i}", n_prompt=28) for i in range(8)], request("ninth", n_prompt=3))
    engine.submit(request("other", n_prompt=3, tenant="another"))
    engine.step()
    assert "other" in engine.admitted
    assert "ninth" not in engine.admitted
    engine.drain()


def test_an_engine_with_nothing_else_to_do_looks_at_all_of_them() -> None:
    engine = stepped_engine(load_delay=50)
    engine.submit(*[request(f"loading {i}", adapter=f"{i}") for i in range(20)], request("base"))
    engine.step()
    assert list(engine.admitted) == ["base"]
    engine.drain()


def test_a_tenant_keeps_to_its_share_of_the_seats_and_others_take_the_rest() -> None:
    engine = stepped_engine(n_blocks=100, tenant_seat_share=0.5, max_num_batched_tokens=60)
    engine.submit(*[request(f"many {i}", max_tokens=20, tenant="many") for i in range(8)])
    engine.step()
    assert engine.scheduler.n_running == 4
    engine.submit(*[request(f"few {i}", max_tokens=20, tenant="few") for i in range(4)])
    engine.step()
    assert {load.tenant: load.running for load in engine.scheduler.tenants()} == {"many": 4, "few": 4}
    engine.drain()


def test_a_tenant_keeps_to_its_share_of_the_kv_pool_and_others_take_the_rest() -> None:
    engine = stepped_engine(n_blocks=33, tenant_kv_share=0.5, max_num_batched_tokens=100)
    engine.submit(*[request(f"many {i}", n_prompt=15, tenant="many") for i in range(6)])
    engine.step()
    assert engine.scheduler.n_running == 4
    assert engine.kv.ledger.in_use_of("many") == 16 * BLOCK_BYTES
    engine.submit(request("few", n_prompt=15, tenant="few"))
    engine.step()
    assert "few" in engine.admitted
    engine.drain()


def test_a_request_beyond_its_tenants_share_of_the_kv_pool_could_never_run() -> None:
    engine = stepped_engine(n_blocks=33, tenant_kv_share=0.25)
    with pytest.raises(ContextLengthExceeded, match="share"):
        engine.submit(request("r", n_prompt=29, max_tokens=4))
    engine.submit(request("r", n_prompt=28, max_tokens=4))
    engine.drain()


@pytest.mark.parametrize("share", ["tenant_seat_share", "tenant_kv_share", "tenant_arena_share"])
def test_who_waits_for_its_own_share_is_no_barrier_to_others(share: str) -> None:
    """It waits far beyond anybody's patience; meanwhile others come and go freely, and nothing drains or gathers."""
    engine = stepped_engine(
        n_blocks=33, arena_grains=16, max_num_batched_tokens=60, barrier_after_s=2.0, **{share: 0.25}
    )
    engine.submit(*[request(f"own {i}", n_prompt=13, max_tokens=18, adapter=f"{i}", tenant="own") for i in range(3)])
    engine.step(8)
    started = {name for name in engine.admitted if name.startswith("own")}
    assert 1 <= len(started) < 3
    for i in range(8):
        engine.submit(request(f"other {i}", n_prompt=2, max_tokens=1, adapter="x", tenant="other"))
        engine.step(2)
        assert engine.residency.ledger[MemoryState.RESERVED] == 0
    assert sum(name.startswith("other") for name in engine.admitted) >= 7
    engine.drain()


def test_nor_does_it_take_the_barriers_place_from_who_needs_it() -> None:
    """`own 2` waited first, for its tenant's seats; `rare` waits for a place in the arena, and gets it drained."""
    engine = stepped_engine(arena_grains=4, tenant_seat_share=0.25)
    engine.submit(*[request(f"own {i}", max_tokens=40, adapter="red", tenant="own") for i in range(3)])
    engine.step(6)
    engine.submit(request("rare", adapter="green"))
    engine.step(5)
    assert engine.residency.state(AdapterKey("own", "red")) is Residency.DRAINING
    engine.drain()


def test_shares_of_one_limit_nobody() -> None:
    """Also not by rounding: a pool of 32 blocks serves a request of 32 blocks."""
    engine = stepped_engine(max_model_len=200)
    engine.submit(request("all", n_prompt=126, max_tokens=2, adapter="red"))
    engine.drain()
