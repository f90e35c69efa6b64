"""Faults that users of comparable systems reported (A1 to A8 of the field reports), tried on the real model.

Those about queues and life cycles, which need no model, are tried in tests/engine/scheduling.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.errors import AdapterRetired
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.ledger import MemoryState
from tests.engine.equality.bench import (
    NAMES,
    OTHER_TENANT,
    TENANT,
    AdapterStore,
    Answer,
    OpenBench,
    Workbench,
    ask,
    forks_of,
    make_request,
    run,
)
from tests.engine.equality.prompts import BASE, EXACT_LENGTHS, N_TOKENS

pytestmark = pytest.mark.slow

BlockBytes = Callable[[int], int]
BLOCK = 16
FEW = 6  # tokens of answer, where the prompts are what matters


def ask_one(bench: Workbench, name: str, prompt: list[int], max_tokens: int) -> Answer:
    answers = ask(bench, [make_request(bench, name, 0, prompt, max_tokens)])
    (answer,) = answers.values()
    return answer


def known_adapters(bench: Workbench) -> set[AdapterKey]:
    """Those that the engine holds any bytes of, or waits for."""
    return {key for key, *_ in bench.engine.loop.residency.overview()}


def test_a1_a_version_replaced_under_its_name_answers_from_its_own_weights(
    open_bench: OpenBench, reference: dict[str, Any]
) -> None:
    """The name stays, its digest changes; going back to the first version is right too."""
    bench, prompt = open_bench(), reference["prompts"]["long"][0]
    assert len(prompt) > 4 * BLOCK
    versions, found = ("pirate", "haiku", "haiku", "pirate"), []
    for version in versions:
        answer = ask_one(bench, version, prompt, FEW)
        assert answer.tokens == reference["tokens"]["long"][version][0][:FEW]
        found.append(answer.cached_tokens)
    whole = (len(prompt) - 1) // BLOCK * BLOCK
    assert found == [0, 0, whole, whole]


def test_a1_a_version_taken_out_of_service_leaves_no_blocks_behind(
    open_bench: OpenBench, reference: dict[str, Any]
) -> None:
    bench, prompt = open_bench(), reference["prompts"]["long"][0]
    ask_one(bench, "pirate", prompt, 4)
    assert bench.engine.loop.kv.ledger[MemoryState.CACHED] > 0
    bench.engine.loop.retire(bench.key("pirate"))
    assert bench.engine.loop.kv.ledger[MemoryState.CACHED] == 0
    again = ask_one(bench, "pirate", prompt, FEW)
    assert again.cached_tokens == 0
    assert again.tokens == reference["tokens"]["long"]["pirate"][0][:FEW]


def test_a2_a_prompt_that_fills_its_blocks_is_answered_alike_cold_cached_and_forked(
    open_bench: OpenBench, reference: dict[str, Any]
) -> None:
    """At least its last token is computed, or there would be no logits to draw from."""
    bench = open_bench(block_size=BLOCK)
    assert EXACT_LENGTHS == (15, 16, 17, 32, 48)
    for prompt, expected in zip(reference["prompts"]["exact"], reference["tokens"]["exact"]["json"], strict=True):
        cold, cached = (ask_one(bench, "json", prompt, FEW) for _ in range(2))
        bench.submit(forks_of(make_request(bench, "json", 0, prompt, FEW), 2))
        bench.drain()
        forked = [bench.answers.pop(request_id) for request_id in list(bench.answers)]
        assert [answer.tokens for answer in (cold, cached, *forked)] == [expected[:FEW]] * 4
        # The prompts are beginnings of one text, so a longer one finds the shorter one's blocks.
        assert cached.cached_tokens == (len(prompt) - 1) // BLOCK * BLOCK
        bench.engine.loop.kv.audit()


def test_a3_identical_prompts_at_once_and_after_their_blocks_were_recycled_get_one_answer(
    open_bench: OpenBench, reference: dict[str, Any], block_bytes: BlockBytes
) -> None:
    bench = open_bench(kv_cache_bytes=17 * block_bytes(BLOCK), max_num_batched_tokens=160)
    prompt, expected = reference["prompts"]["long"][2], reference["tokens"]["long"]["haiku"][2]
    kv = bench.engine.loop.kv
    together = [make_request(bench, "haiku", index, prompt, N_TOKENS["long"]) for index in range(3)]
    answers = run(bench, [together], steps_between=1)
    assert list(answers.values()) == [expected] * 3
    kv.audit()
    others = reference["prompts"]["chat"] + reference["prompts"]["exact"]
    run(bench, [[make_request(bench, BASE, i, other, FEW)] for i, other in enumerate(others)], steps_between=2)
    kv.audit()
    again = ask_one(bench, "haiku", prompt, N_TOKENS["long"])
    assert again.tokens == expected
    assert again.cached_tokens is not None
    assert again.cached_tokens < (len(prompt) - 1) // BLOCK * BLOCK, "no block of it was recycled"
    kv.audit()
    ledger = kv.ledger
    assert ledger[MemoryState.FREE] + ledger[MemoryState.CACHED] == ledger.capacity


@pytest.mark.parametrize("seed", [1, 2])
def test_a4_survivors_of_a_batch_go_on_as_if_alone_when_short_requests_leave_it(
    open_bench: OpenBench, reference: dict[str, Any], seed: int
) -> None:
    bench, rng = open_bench(), random.Random(seed)
    waves, expected = [], {}
    for number in range(14):
        kind = rng.choice(["chat", "long", "exact"])
        name, index = rng.choice(NAMES), rng.randrange(len(reference["prompts"][kind]))
        request = make_request(
            bench, name, index, reference["prompts"][kind][index], rng.randint(1, N_TOKENS[kind]), label=f"{number} "
        )
        waves.append([request])
        expected[request.request_id] = reference["tokens"][kind][name][index][: request.max_tokens]
    assert run(bench, waves, steps_between=rng.randint(1, 4)) == expected


def test_a5_an_unloaded_adapter_is_gone_at_once_and_its_bytes_come_back(
    open_bench: OpenBench, reference: dict[str, Any], adapter_store: AdapterStore
) -> None:
    """Room for two; three are used, one is unloaded, and then loaded and unloaded fifty times."""
    bench = open_bench(adapter_pool_bytes=2 * adapter_store.largest_bytes)
    loop, prompt = bench.engine.loop, reference["prompts"]["exact"][0]
    ledgers = (loop.residency.ledger, loop.residency.host_ledger)
    start = [ledger[MemoryState.FREE] for ledger in ledgers]
    for name in ("haiku", "json", "pirate"):
        ask_one(bench, name, prompt, 1)
    loop.retire(bench.key("json"))
    assert known_adapters(bench) == {bench.key("haiku"), bench.key("pirate")}
    for name in ("haiku", "pirate"):
        loop.retire(bench.key(name))
    assert known_adapters(bench) == set()
    before = 0
    for turn in range(50):
        ask_one(bench, "json", prompt, 1)
        assert known_adapters(bench) == {bench.key("json")}
        loop.retire(bench.key("json"))
        if turn == 4:
            before = resident_memory()
    assert [ledger[MemoryState.FREE] for ledger in ledgers] == start
    assert resident_memory() - before < adapter_store.largest_bytes


def resident_memory() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a7_what_runs_on_an_unloaded_adapter_ends_exactly_and_nothing_new_starts(
    open_bench: OpenBench, reference: dict[str, Any]
) -> None:
    """A new version is served beside the old one's last answer; nobody gets the base model's tokens instead."""
    bench, prompts = open_bench(), reference["prompts"]["chat"]
    loop, key = bench.engine.loop, bench.key("pirate")
    old = make_request(bench, "pirate", 0, prompts[0])
    bench.submit([old])
    while len(bench.answers[old.request_id].tokens) < 5:
        bench.step()
    loop.retire(key)
    with pytest.raises(AdapterRetired) as refusal:
        bench.submit([make_request(bench, "pirate", 1, prompts[1])])
    assert refusal.value.code == "adapter_retired"
    new = make_request(bench, "haiku", 0, prompts[0])
    bench.submit([new])
    while not bench.answers[new.request_id].tokens:
        bench.step()
    assert bench.answers[old.request_id].finish_reason is None
    bench.drain()
    assert bench.answers[old.request_id].tokens == reference["tokens"]["chat"]["pirate"][0]
    assert bench.answers[new.request_id].tokens == reference["tokens"]["chat"]["haiku"][0]
    assert key not in known_adapters(bench)


def test_a8_more_adapters_at_once_than_a_step_may_hold_are_all_answered(
    open_bench: OpenBench, reference: dict[str, Any]
) -> None:
    """Four adapters a step; four, the base model and a fifth at the same instant, again and again."""
    bench, prompt = open_bench(max_adapters_per_step=4), reference["prompts"]["exact"][0]
    for turn in range(6):
        requests, expected = [], {}
        callers = [(name, TENANT) for name in NAMES] + [(name, OTHER_TENANT) for name in ("haiku", "json")]
        random.Random(turn).shuffle(callers)
        for name, tenant in callers:
            requests.append(make_request(bench, name, 0, prompt, 6, tenant=tenant, label=f"{turn} {tenant} "))
            expected[requests[-1].request_id] = reference["tokens"]["exact"][name][0][:6]
        assert run(bench, [requests], steps_between=1) == expected
    assert max(len({row.adapter for row in plan.rows if row.adapter}) for plan in bench.plans) == 4


def test_a_prefix_is_found_by_the_same_tenant_with_the_same_adapter_and_by_nobody_else(
    open_bench: OpenBench, reference: dict[str, Any]
) -> None:
    """Both halves: whoever may share finds everything; whoever may not finds nothing, and is answered rightly."""
    bench, prompt = open_bench(), reference["prompts"]["long"][0]
    whole = (len(prompt) - 1) // BLOCK * BLOCK
    callers = [
        ("pirate", TENANT, b"secret"),
        ("pirate", OTHER_TENANT, b"secret"),
        ("pirate", TENANT, b"another secret"),
        ("haiku", TENANT, b"secret"),  # another adapter, or another version behind the same name
        (BASE, TENANT, b"secret"),
    ]
    for expected in (0, whole):
        for name, tenant, salt in callers:
            request = make_request(bench, name, 0, prompt, FEW, tenant=tenant)
            request.cache_salt = salt
            (answer,) = ask(bench, [request]).values()
            assert answer.cached_tokens == expected, (name, tenant, salt)
            assert answer.tokens == reference["tokens"]["long"][name][0][:FEW]
