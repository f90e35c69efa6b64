"""Whatever the scheduler does to fit requests into steps and memory, every answer stays transformers' and PEFT's own.

Each test forces one of its means, asserts that it was used, and compares greedy float32 tokens with the recording.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.plan import Phase, SamplingParams
from lorikeet_engine.scheduling.request import Request
from tests.engine.equality.bench import (
    NAMES,
    OTHER_TENANT,
    TENANT,
    AdapterStore,
    OpenBench,
    Workbench,
    ask,
    forks_of,
    make_request,
    recorded_requests,
    recorded_tokens,
    run,
)
from tests.engine.equality.prompts import BASE, EXACT_LENGTHS

pytestmark = pytest.mark.slow

BlockBytes = Callable[[int], int]
WHOLE_PROMPTS = 1 << 20
FEW = 10  # tokens of answer, where the prompts are what matters


def assert_nothing_is_in_use(bench: Workbench) -> None:
    loop = bench.engine.loop
    loop.kv.audit()
    for ledger in (loop.kv.ledger, loop.kv.swap_ledger, loop.residency.ledger):
        assert ledger[MemoryState.USED] == ledger[MemoryState.RESERVED] == ledger[MemoryState.IN_FLIGHT] == 0


@pytest.mark.parametrize(
    ("largest_chunk", "settings"),
    [
        (16, {"max_num_batched_tokens": 24}),
        (48, {"max_num_batched_tokens": 56}),
        (WHOLE_PROMPTS, {"max_num_batched_tokens": 512}),
        (WHOLE_PROMPTS, {"max_num_batched_tokens": 264, "enable_chunked_prefill": False}),
    ],
    ids=["16", "48", "all", "chunking off"],
)
def test_prompts_may_be_computed_in_chunks(
    open_bench: OpenBench, reference: dict[str, Any], largest_chunk: int, settings: dict[str, Any]
) -> None:
    bench = open_bench(max_num_seqs=8, enable_prefix_caching=False, **settings)
    requests = recorded_requests(bench, reference, "long", names=("pirate",), n_tokens=FEW)
    tokens = run(bench, [[request] for request in requests], steps_between=1)
    assert tokens == recorded_tokens(reference, "long", names=("pirate",), n_tokens=FEW)
    prefills = [row for row in bench.rows_since(0) if row.phase is Phase.PREFILL]
    unfinished = {len(row.token_ids) for row in prefills if not row.samples}
    if largest_chunk == WHOLE_PROMPTS:
        assert len(prefills) == len(requests) or max(unfinished) > 48
    else:
        assert max(unfinished) == largest_chunk


@pytest.mark.parametrize("block_size", [16, 32])
def test_prefixes_may_come_out_of_the_cache(open_bench: OpenBench, reference: dict[str, Any], block_size: int) -> None:
    """The first time requests share the blocks of their common text, the second time all but the last are there."""
    bench = open_bench(block_size=block_size)
    expected = recorded_tokens(reference, "long", n_tokens=FEW)
    first = ask(bench, recorded_requests(bench, reference, "long", n_tokens=FEW))
    assert {name: answer.tokens for name, answer in first.items()} == expected
    assert sum(answer.cached_tokens or 0 for answer in first.values()) > 0
    n_plans = len(bench.plans)
    second = ask(bench, recorded_requests(bench, reference, "long", n_tokens=FEW))
    assert {name: answer.tokens for name, answer in second.items()} == expected
    for index, prompt in enumerate(reference["prompts"]["long"]):
        for name in NAMES:
            assert second[f"{name}-{index}"].cached_tokens == (len(prompt) - 1) // block_size * block_size
    computed = [row for row in bench.rows_since(n_plans) if row.phase is Phase.PREFILL]
    assert max(len(row.token_ids) for row in computed) <= block_size
    assert_nothing_is_in_use(bench)


def test_without_the_prefix_cache_every_prompt_is_computed(open_bench: OpenBench, reference: dict[str, Any]) -> None:
    bench, name = open_bench(enable_prefix_caching=False), "json"
    for _ in range(2):
        answers = ask(bench, recorded_requests(bench, reference, "long", names=(name,), n_tokens=FEW))
        expected = recorded_tokens(reference, "long", names=(name,), n_tokens=FEW)
        assert {name: answer.tokens for name, answer in answers.items()} == expected
        assert {answer.cached_tokens for answer in answers.values()} == {0}
    assert bench.engine.loop.kv.ledger[MemoryState.CACHED] == 0


@pytest.mark.parametrize("caching", [True, False], ids=["cached prefixes", "no prefix cache"])
@pytest.mark.parametrize("way", ["swap", "recompute"])
def test_requests_may_be_pushed_out_of_a_small_pool_and_come_back(
    open_bench: OpenBench, reference: dict[str, Any], block_bytes: BlockBytes, way: str, caching: bool
) -> None:
    """Sixteen blocks for requests that start with three and grow to four or five."""
    bench = open_bench(
        kv_cache_bytes=17 * block_bytes(16),
        swap_space=32 * block_bytes(16) if way == "swap" else 0,
        preemption=way,
        enable_prefix_caching=caching,
    )
    names = ("haiku",)
    requests = recorded_requests(bench, reference, "chat", names=names)
    tokens = run(bench, [[request] for request in requests], steps_between=1)
    assert tokens == recorded_tokens(reference, "chat", names=names)
    counters = bench.engine.loop.scheduler.counters
    assert counters.preemptions[way] > 0
    if way == "swap":
        n_out, n_in = (sum(len(getattr(plan, copies)) for plan in bench.plans) for copies in ("swap_outs", "swap_ins"))
        assert (counters.swap_bytes["out"], counters.swap_bytes["in"]) == (
            n_out * block_bytes(16),
            n_in * block_bytes(16),
        )
        assert n_out >= n_in > 0
    else:
        assert counters.recomputed_tokens > 0
    assert_nothing_is_in_use(bench)


def test_six_adapters_may_share_an_arena_that_holds_two(
    open_bench: OpenBench, reference: dict[str, Any], adapter_store: AdapterStore
) -> None:
    """The three demo adapters under two tenants, and the base model beside them."""
    bench = open_bench(adapter_pool_bytes=2 * adapter_store.largest_bytes)
    requests: list[Request] = []
    expected: dict[str, list[int]] = {}
    for tenant in (TENANT, OTHER_TENANT):
        label = f"{tenant}: "
        requests += recorded_requests(bench, reference, "exact", tenant=tenant, label=label, n_tokens=FEW)
        expected |= recorded_tokens(reference, "exact", label=label, n_tokens=FEW)
    random.Random(5).shuffle(requests)
    assert run(bench, [requests[i : i + 4] for i in range(0, len(requests), 4)], steps_between=3) == expected
    residency = bench.engine.loop.residency
    assert all(len({row.adapter for row in plan.rows if row.adapter}) <= 2 for plan in bench.plans)
    placed = [placement.key for plan in bench.plans for placement in plan.placements]
    assert len(set(placed)) == 6
    assert len(placed) > 6, "no adapter came back after it had left"
    assert sum(residency.evictions.values()) > 0
    assert_nothing_is_in_use(bench)


@pytest.mark.parametrize(("n_prompt", "name"), [(15, BASE), (15, "json"), (16, "json"), (17, "json"), (32, "json")])
def test_three_sequences_of_one_prompt_each_give_the_oracles_answer(
    open_bench: OpenBench, reference: dict[str, Any], n_prompt: int, name: str
) -> None:
    """Below, at and above the end of a block; the prompt is computed once for all three."""
    bench, index = open_bench(), EXACT_LENGTHS.index(n_prompt)
    prompt = reference["prompts"]["exact"][index]
    bench.submit(forks_of(make_request(bench, name, index, prompt, FEW), 3))
    bench.drain()
    expected = reference["tokens"]["exact"][name][index][:FEW]
    assert [answer.tokens for answer in bench.answers.values()] == [expected] * 3
    n_computed = sum(len(row.token_ids) for row in bench.rows_since(0) if row.phase is Phase.PREFILL)
    assert n_computed <= n_prompt + 2, "the forks computed the prompt again"
    assert_nothing_is_in_use(bench)


@pytest.mark.parametrize("n_prompt", [15, 17])
def test_sequences_that_part_ways_do_not_disturb_each_other(
    open_bench: OpenBench, reference: dict[str, Any], n_prompt: int
) -> None:
    """Drawn tokens differ, so a tail block that two sequences wrote to would show; each equals itself run alone.

    Of the likeliest tokens only: among the thousands of others rounding alone can tip a draw to a neighbour.
    """
    sampling = SamplingParams(temperature=1.0, top_k=40, seed=n_prompt)
    prompt = reference["prompts"]["exact"][EXACT_LENGTHS.index(n_prompt)]

    def sequences(bench: Workbench) -> list[Request]:
        return forks_of(make_request(bench, "haiku", 0, prompt, 12, sampling=sampling), 3)

    alone_bench = open_bench(enable_prefix_caching=False)
    alone: dict[str, list[int]] = {}
    for request in sequences(alone_bench):
        alone |= run(alone_bench, [[request]], steps_between=1)
    assert len({tuple(tokens) for tokens in alone.values()}) == 3
    together = open_bench()
    together.submit(sequences(together))
    together.drain()
    assert {name: answer.tokens for name, answer in together.answers.items()} == alone


def test_everything_at_once_still_gives_the_oracles_answers(
    open_bench: OpenBench, reference: dict[str, Any], adapter_store: AdapterStore, block_bytes: BlockBytes
) -> None:
    """Small chunks, a small pool with swapping, room for two adapters, shared prefixes, six adapters, three prompts."""
    bench = open_bench(
        max_num_seqs=8,
        max_num_batched_tokens=40,
        kv_cache_bytes=25 * block_bytes(16),
        swap_space=24 * block_bytes(16),
        adapter_pool_bytes=2 * adapter_store.largest_bytes,
    )
    requests: list[Request] = []
    expected: dict[str, list[int]] = {}
    for kind, tenant in (("long", TENANT), ("exact", OTHER_TENANT)):
        label = f"{tenant} {kind}: "
        requests += recorded_requests(bench, reference, kind, tenant=tenant, label=label, n_tokens=FEW)
        expected |= recorded_tokens(reference, kind, label=label, n_tokens=FEW)
    random.Random(11).shuffle(requests)
    assert run(bench, [[request] for request in requests], steps_between=2) == expected
    assert_nothing_is_in_use(bench)
