"""What a request is charged: by hand for small batches, and all of them together against the engine's totals."""

from __future__ import annotations

import random

import pytest

from lorikeet_engine.cost import StepShape, lora_row_flops, step_work
from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.errors import EngineError
from lorikeet_engine.scheduling.request import Request
from tests.support.costs import assert_costs_add_up, summed
from tests.support.scripted_engine_parts import COST, request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

BLOCK_BYTES, ADAPTER_BYTES = 64, 4 * 32


def cost_of(engine: SteppedEngine, name: str) -> CostVector:
    return engine.requests[name].cost


def add_up(engine: SteppedEngine) -> CostVector:
    return assert_costs_add_up(engine.loop, engine.requests.values())


def test_a_request_alone_pays_for_all_of_its_steps() -> None:
    engine = stepped_engine()
    engine.submit(request("r", n_prompt=5, max_tokens=3))
    engine.drain()
    prompt, answers = StepShape(), StepShape()
    prompt.add_prefill(5, 0, samples=True)
    answers.add_decode(5)
    second = StepShape()
    second.add_decode(6)
    cost = add_up(engine)
    decode = step_work(COST, answers) + step_work(COST, second)
    assert cost.prefill_flops == step_work(COST, prompt).flops
    assert cost.prefill_read_bytes == step_work(COST, prompt).read_bytes
    assert cost.decode_flops == decode.flops
    assert cost.decode_read_bytes == decode.read_bytes
    assert cost.write_bytes == (5 + 2) * COST.kv_bytes_per_token
    assert (cost.wasted_flops, cost.load_bytes, cost.swap_bytes, cost.adapter_byte_seconds) == (0, 0, 0, 0)
    # 6 tokens are promised 2 blocks, which are there for three steps of a second each.
    assert cost.kv_byte_seconds == 2 * BLOCK_BYTES * 3.0


def test_rows_of_a_step_share_the_weights_by_their_tokens_and_the_head_by_their_samples() -> None:
    engine = stepped_engine(max_num_batched_tokens=16)
    engine.submit(request("short", n_prompt=4, max_tokens=1), request("long", n_prompt=12, max_tokens=1))
    engine.drain()
    assert len(engine.plans) == 1
    add_up(engine)
    assert cost_of(engine, "short").prefill_read_bytes == COST.layer_bytes * 4 / 16 + COST.head_bytes / 2
    assert cost_of(engine, "long").prefill_read_bytes == COST.layer_bytes * 12 / 16 + COST.head_bytes / 2


def test_requests_on_one_adapter_share_its_bytes_its_memory_and_not_its_load() -> None:
    engine = stepped_engine()
    engine.submit(*(request(name, n_prompt=4, max_tokens=3, adapter="red") for name in ("first", "second")))
    engine.submit(request("base", n_prompt=4, max_tokens=3))
    engine.drain()
    add_up(engine)
    first, second, base = (cost_of(engine, name) for name in ("first", "second", "base"))
    assert (first.load_bytes, second.load_bytes, base.load_bytes) == (ADAPTER_BYTES, 0.0, 0.0)
    assert first.adapter_byte_seconds == second.adapter_byte_seconds == ADAPTER_BYTES / 2 * 3.0
    assert base.adapter_byte_seconds == 0.0
    # The scripted base model's request ran a step earlier, while the adapter was loaded.
    per_token = lora_row_flops(ADAPTER_BYTES)
    assert first.decode_flops - base.decode_flops == 2 * per_token
    assert first.prefill_flops - base.prefill_flops == 4 * per_token


def test_blocks_that_requests_share_are_held_in_equal_parts() -> None:
    engine = stepped_engine(n_blocks=60)
    prompt = tuple(range(1, 18))  # four full blocks and one more token
    engine.submit(request("first", prompt=prompt, max_tokens=12))
    engine.step(4)
    engine.submit(request("second", prompt=prompt, max_tokens=4))
    engine.drain()
    add_up(engine)
    assert engine.admitted["second"].cached_tokens == 16
    held_alone = stepped_engine(n_blocks=60)
    held_alone.submit(request("alone", prompt=prompt, max_tokens=4))
    held_alone.drain()
    second, alone = cost_of(engine, "second"), cost_of(held_alone, "alone")
    # Four blocks of the prompt are there twice, a fifth takes the rest and the answer; four steps, and one more alone.
    assert second.kv_byte_seconds == (4 / 2 + 1) * BLOCK_BYTES * 4.0
    assert alone.kv_byte_seconds == (4 + 1) * BLOCK_BYTES * 5.0


def test_answers_of_one_request_share_the_prompt() -> None:
    engine = stepped_engine(n_blocks=60)
    engine.submit_together(
        [request("r" if i == 0 else f"r#{i}", prompt=tuple(range(1, 9)), max_tokens=5) for i in range(3)]
    )
    engine.drain()
    add_up(engine)
    first, other = cost_of(engine, "r"), cost_of(engine, "r#1")
    assert other.prefill_flops < first.prefill_flops / 4, "one token of the prompt is computed again"
    assert other.decode_flops == first.decode_flops
    assert other.wasted_flops == 0.0


def pressed(preemption: str) -> SteppedEngine:
    """Two requests that do not fit together to their ends: one of them has to give way."""
    engine = stepped_engine(n_blocks=12, n_host_slots=32, preemption=preemption, enable_prefix_caching=False)
    engine.submit(request("a", n_prompt=12, max_tokens=20), request("b", n_prompt=12, max_tokens=20))
    engine.drain()
    assert engine.counters.preemptions[preemption] > 0
    return engine


def test_what_a_preemption_dropped_is_paid_again_and_called_wasted() -> None:
    engine = pressed("recompute")
    add_up(engine)
    alone = stepped_engine()
    alone.submit(request("alone", n_prompt=12, max_tokens=20))
    alone.drain()
    a, b, reference = cost_of(engine, "a"), cost_of(engine, "b"), cost_of(alone, "alone")
    assert a.wasted_flops == 0.0
    assert b.wasted_flops > 0.0
    n_again = engine.counters.recomputed_tokens
    assert b.wasted_flops == pytest.approx(2 * COST.layer_params * n_again, rel=0.2)
    all_of_b = b.prefill_flops + b.decode_flops - b.wasted_flops
    # Where it is computed again its newest token comes with the prompt, and nothing else differs.
    assert all_of_b == pytest.approx(reference.prefill_flops + reference.decode_flops)


def test_what_is_copied_to_host_memory_and_back_is_charged_to_whom_it_belongs_to() -> None:
    engine = pressed("swap")
    cost = add_up(engine)
    assert cost_of(engine, "a").swap_bytes == 0.0
    assert cost_of(engine, "b").swap_bytes == sum(engine.counters.swap_bytes.values()) > 0
    assert cost.wasted_flops == 0.0


def test_memory_costs_nothing_while_nobody_runs() -> None:
    engine = stepped_engine()
    engine.submit(request("r", max_tokens=1, adapter="red"))
    engine.drain()
    before = add_up(engine)
    engine.now += 1000.0
    engine.step()
    assert add_up(engine) == before
    engine.submit(request("s", max_tokens=1, adapter="red"))
    engine.drain()
    add_up(engine)
    assert cost_of(engine, "s").adapter_byte_seconds == ADAPTER_BYTES * 1.0


def test_a_failed_step_is_nobodys_and_not_in_the_totals_either() -> None:
    engine = stepped_engine()
    engine.submit(request("a", adapter="red"), request("b"))
    engine.step(3)
    engine.engine.runner.fail_next = True
    engine.step()
    assert engine.errors.keys() == {"a", "b"}
    add_up(engine)


def test_a_request_that_waits_for_an_adapter_and_goes_has_cost_nothing() -> None:
    engine = stepped_engine(load_delay=50)
    engine.submit(request("r", adapter="red"))
    engine.step(3)
    engine.loop.abort("r")
    engine.step()
    assert cost_of(engine, "r") == CostVector()


@pytest.mark.parametrize("overlaps", [False, True], ids=["waits", "overlaps"])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_tenants_costs_sum_to_the_engines_after_five_hundred_mixed_requests(preemption: str, overlaps: bool) -> None:
    """Issue 7, "Done when": aborts, preemptions, answers in parallel, shared prefixes, several adapters, failures."""
    draw = random.Random(7)
    engine = stepped_engine(
        n_blocks=36,
        n_host_slots=64 if preemption == "swap" else 0,
        preemption=preemption,
        overlaps=overlaps,
        max_queued_requests=1000,
        arena_grains=12,
    )
    n_aborted = 0
    for serial in range(500):
        n = draw.choice([1, 1, 1, 1, 3])
        try:
            engine.submit_together(some_answers(serial, n, draw))
        except EngineError:
            continue
        engine.step(draw.choice([0, 0, 1, 2, 4]))
        engine.engine.runner.fail_next = draw.random() < 0.01
        if draw.random() < 0.15:
            open_ones = [name for name in engine.requests if name not in engine.finished.keys() | engine.errors.keys()]
            if open_ones:
                engine.loop.abort(draw.choice(open_ones))
                n_aborted += 1
    engine.engine.runner.fail_next = False
    engine.drain(max_steps=20_000)
    assert engine.counters.preemptions[preemption] > 20
    assert n_aborted > 40
    by_tenant = {
        tenant: summed(one.cost for one in engine.requests.values() if one.tenant == tenant)
        for tenant in ("anna", "ben", "carl")
    }
    together, totals = summed(by_tenant.values()), add_up(engine)
    assert together.decode_flops == pytest.approx(totals.decode_flops)
    assert all(cost.kv_byte_seconds > 0 and cost.adapter_byte_seconds > 0 for cost in by_tenant.values())
    spent = [totals.wasted_flops, totals.load_bytes, totals.swap_bytes if preemption == "swap" else 1.0]
    assert min(spent) > 0, "everything that can be spent was"


def test_the_totals_are_those_of_the_steps_that_ran() -> None:
    engine = pressed("recompute")
    totals, work = engine.scheduler.costing.totals(), engine.loop.counters.work.values()
    assert totals.prefill_flops + totals.decode_flops == pytest.approx(sum(each.flops for each in work))
    assert totals.prefill_read_bytes + totals.decode_read_bytes == pytest.approx(sum(each.read_bytes for each in work))
    assert totals.write_bytes == sum(each.write_bytes for each in work)


def some_answers(serial: int, n: int, draw: random.Random) -> list[Request]:
    tenant, adapter = draw.choice(["anna", "ben", "carl"]), draw.choice(["", "", "red", "green", "blue"])
    prompt = tuple(1 + i // 8 for i in range(draw.randint(1, 30)))  # few letters: prefixes are often shared
    max_tokens = draw.randint(1, 24)
    names = [f"r{serial}" if index == 0 else f"r{serial}#{index}" for index in range(n)]
    return [request(name, prompt=prompt, max_tokens=max_tokens, adapter=adapter, tenant=tenant) for name in names]
