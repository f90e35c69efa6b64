"""What adapters do: their counts add up to what the engine as a whole has counted."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.observing import observatory as observatory_module
from lorikeet_engine.observing.busiest import FORMER, TERM_S
from lorikeet_engine.observing.observer import Use
from tests.support.scripted_engine_parts import request
from tests.support.stepped_engine import SteppedEngine, stepped_engine

GRAIN_BYTES, ADAPTER_GRAINS, ITEMSIZE = 32, 4, 2
SIZE = GRAIN_BYTES * ADAPTER_GRAINS


def crowded(seed: int, *, n_adapters: int, host_grains: int = 16) -> SteppedEngine:
    """Adapters that rotate through an arena with room for three, over a host cache with room for four, or fewer."""
    engine = stepped_engine(
        arena_grains=12, host_grains=host_grains, n_blocks=33, max_adapters_per_step=2, load_delay=2
    )
    draw = random.Random(seed)
    for i in range(60):
        digest = f"a{draw.randrange(n_adapters)}" if draw.random() < 0.8 else ""
        engine.submit(request(f"r{i}", tenant=draw.choice(["anna", "ben"]), adapter=digest, max_tokens=6))
        engine.step(draw.randrange(3))
        if draw.random() < 0.1:
            engine.loop.abort(f"r{draw.randrange(i + 1)}")
        if draw.random() < 0.05:
            engine.engine.runner.fail_next = True
    engine.step_until(lambda: not engine.loop.has_work)
    engine.step()
    return engine


def uses(engine: SteppedEngine) -> dict[tuple[str, str], Use]:
    return {(use.tenant, use.digest): use for use in engine.loop.observer.observed(engine.now).uses}


@pytest.mark.parametrize("seed", range(4))
def test_the_busiest_and_the_others_add_up_to_the_engines_totals(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observatory_module, "NAMED_ADAPTERS", 3)
    engine = crowded(seed, n_adapters=6)
    found = uses(engine)
    assert len(found) == 4
    runner, residency = engine.engine.runner, engine.residency
    rows = [row for plan in runner.plans for row in plan.rows if row.adapter]
    assert sum(use.tokens for use in found.values()) == sum(len(row.token_ids) for row in rows) > 0
    placed = [placement.key for plan in (*runner.plans, *runner.failed) for placement in plan.placements]
    assert sum(use.loads for use in found.values()) == len(placed)
    assert sum(use.evictions for use in found.values()) == residency.evictions.total() > 0
    assert sum(use.stall_s for use in found.values()) == pytest.approx(engine.counters.adapter_stall_s)
    assert engine.counters.adapter_stall_s > 0
    work = engine.loop.counters.work.values()
    assert sum(use.read_bytes for use in found.values()) == sum(one.lora_bytes for one in work)
    assert sum(use.row_flops for use in found.values()) == sum(one.lora_flops for one in work)


@pytest.mark.parametrize("overlaps", [False, True])
def test_the_last_step_of_an_adapter_that_is_gone_after_it_counts_like_the_others(overlaps: bool) -> None:
    engine = stepped_engine(overlaps=overlaps)
    engine.submit(request("r", adapter="red", max_tokens=3))
    engine.step(3)
    engine.loop.retire(AdapterKey("tenant", "red"))
    engine.drain()
    assert engine.residency.state(AdapterKey("tenant", "red")) is None
    use = uses(engine)[AdapterKey("tenant", "red")]
    n_steps = sum(any(row.adapter for row in plan.rows) for plan in engine.plans)
    assert (use.read_bytes, use.row_flops) == (SIZE * n_steps, use.tokens * 2 * SIZE / ITEMSIZE)


@pytest.mark.parametrize("seed", range(4))
def test_uses_add_up_where_images_are_dropped_all_the_time(seed: int) -> None:
    engine = crowded(seed, n_adapters=6, host_grains=4)
    work = engine.loop.counters.work.values()
    found = uses(engine).values()
    assert sum(use.read_bytes for use in found) == sum(one.lora_bytes for one in work) > 0
    assert sum(use.row_flops for use in found) == sum(one.lora_flops for one in work)


def test_each_adapter_is_charged_with_what_it_did_itself() -> None:
    engine = crowded(9, n_adapters=3)
    found = uses(engine)
    tokens: Counter[AdapterKey] = Counter()
    steps: Counter[AdapterKey] = Counter()
    for plan in engine.plans:
        steps.update({row.adapter for row in plan.rows if row.adapter})
        for row in plan.rows:
            if row.adapter:
                tokens[row.adapter] += len(row.token_ids)
    for key, n in tokens.items():
        use = found[key]
        assert (use.tokens, use.read_bytes) == (n, SIZE * steps[key])
        assert use.row_flops == n * 2 * SIZE / ITEMSIZE
        assert use.loads - use.evictions == (engine.residency.state(key) == "resident")


def test_what_a_former_name_has_done_stays_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observatory_module, "NAMED_ADAPTERS", 1)
    engine = stepped_engine()
    engine.submit(request("r1", adapter="old", max_tokens=2))
    engine.drain()
    before = uses(engine)[AdapterKey("tenant", "old")]
    engine.now += TERM_S
    engine.submit(request("r2", adapter="old", max_tokens=2), request("r3", adapter="new", max_tokens=20))
    engine.drain()
    engine.now += TERM_S
    engine.submit(request("r4", adapter="new", max_tokens=2))
    engine.drain()
    found = uses(engine)
    assert set(found) == {("tenant", "new"), ("", ""), (FORMER, "")}
    assert found[FORMER, ""].tokens >= before.tokens
    work = engine.loop.counters.work.values()
    assert sum(use.row_flops for use in found.values()) == sum(one.lora_flops for one in work)


def test_a_model_without_adapters_has_no_uses() -> None:
    engine = stepped_engine()
    engine.submit(request("r"))
    engine.drain()
    assert uses(engine) == {("", ""): Use("", "", 0, 0, 0, 0.0, 0.0, 0.0)}
