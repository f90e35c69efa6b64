"""Faults injected into a live engine: the rule about each speaks, and of a healthy one nothing is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from lorikeet_engine.client import EngineClient, GenerationRequest
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from lorikeet_platform.doctor.catalogue import examine
from lorikeet_platform.doctor.examined import Registered, Seen, Surroundings
from lorikeet_platform.doctor.schemas import Finding
from lorikeet_platform.engine_watch.watch import EngineWatch
from tests.support.live_engine import (
    TENANT,
    LiveEngine,
    LiveModel,
    answer_all,
    answered,
    ask,
    live_engine,
    live_model,
    talk,
)

pytestmark = pytest.mark.slow

SYSTEM = "You are a helpful assistant of a harbour. You speak of ships, tides and weather, and you never guess. "
WORDS = [first + second for first in "ghklmn" for second in "aeiou"]
RANKS = {f"small{i}": 4 for i in range(6)} | {"huge": 64}
SAMPLE_S = 0.05

Load = Callable[[EngineClient], Awaitable[object]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LiveModel:
    model = live_model(tmp_path_factory.mktemp("live"))
    for name, rank in RANKS.items():
        model.add_adapter(name, rank=rank)
    return model


def findings(
    model: LiveModel,
    load: Load,
    *,
    warm_up: Load | None = None,
    fault: Callable[[LiveEngine], None] = lambda _: None,
    **settings: Any,
) -> dict[str, Finding]:
    """What the rules say of an engine while it serves `load`: each one's last word, if it ever spoke."""
    found: dict[str, Finding] = {}
    registered = [Registered(TENANT, name, model.digests[name], rank) for name, rank in RANKS.items()]

    async def scenario(client: EngineClient) -> None:
        watch = EngineWatch(client, every_s=SAMPLE_S)

        async def look() -> None:
            window = watch.window()
            if window is not None and watch.design is not None:
                watch.prompts = await client.prompts()
                around = Surroundings(decode=client.tokenizer.decode, registered=lambda: registered)
                said = examine(around, Seen(window, watch.design, watch.prompts, around))
                found.update({rule: finding for rule, finding in said.items() if finding})

        await (warm_up or _warm_up)(client)
        watch.subscribe(look)
        await watch.sample()
        watching = asyncio.create_task(watch.run())
        await load(client)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await watch.sample()

    with live_engine(model, **settings) as engine:
        fault(engine)
        talk(engine, scenario)
    return found


async def _warm_up(client: EngineClient) -> None:
    """A first request is slow for reasons of its own."""
    await answered(client, ask("warm up " * 8, 4))


def evidence(finding: Finding) -> dict[str, str]:
    return {item.label: item.value for item in finding.evidence}


def test_a_healthy_engine_has_no_findings(model: LiveModel) -> None:
    digests = [None, model.digests["small0"], model.digests["small1"]]
    requests = [ask(f"{SYSTEM}Question {i}?", 24, adapter=digests[i % 3]) for i in range(36)]

    async def load(client: EngineClient) -> None:
        await answer_all(client, requests, at_once=6)

    assert findings(model, load) == {}


def test_times_at_the_head_of_prompts_are_found(model: LiveModel) -> None:
    requests = [ask(f"2026-11-30 10:{i:02}:{(7 * i) % 60:02} {SYSTEM}", 8) for i in range(24)]

    async def load(client: EngineClient) -> None:
        await answer_all(client, requests, at_once=4)

    found = findings(model, load)
    assert set(found) == {"dynamic_prompt_head"}
    said = evidence(found["dynamic_prompt_head"])
    assert said["first different token"] in ("position 14", "position 15")
    assert said["hit rate"].startswith("0.0 %")


def test_adapters_that_rotate_through_too_small_an_arena_are_found(model: LiveModel) -> None:
    names = [f"small{i}" for i in range(6)]
    requests = [ask(f"{SYSTEM}{i}", 4, adapter=model.digests[names[i % 6]]) for i in range(36)]
    arena = int(2.5 * model.sizes["small0"])

    async def load(client: EngineClient) -> None:
        await answer_all(client, requests, at_once=6)

    found = findings(model, load, adapter_pool_bytes=arena)
    assert set(found) == {"adapter_thrash"}
    finding = found["adapter_thrash"]
    assert finding.setting is not None
    name, _, value = finding.setting.partition("=")
    assert name == "LORIKEET_ENGINE__ADAPTER_POOL_BYTES"
    assert int(value) >= sum(model.sizes[name] for name in names)
    assert evidence(finding)["adapters in use"].startswith("6, ")


def test_too_many_seats_for_the_pool_are_found(model: LiveModel) -> None:
    requests = [ask(f"{word} and {SYSTEM[:20]}", 100) for word in WORDS[:24]]  # 8 blocks each in the end

    async def load(client: EngineClient) -> None:
        await answer_all(client, requests, at_once=24)

    found = findings(model, load, n_blocks=40, max_num_seqs=24, max_model_len=256)
    assert set(found) == {"preemption"}
    assert found["preemption"].setting == "LORIKEET_ENGINE__MAX_NUM_SEQS=3"  # 60 % of 40 / 8
    assert found["preemption"].cost.share is not None
    assert found["preemption"].cost.share > 0


def slower(step_s: float, token_s: float) -> Callable[[LiveEngine], None]:
    """A machine that takes so much longer for every step, and for every token in it."""

    def slow_down(engine: LiveEngine) -> None:
        runner = engine.engine.runner
        execute = runner.execute

        def slowly(plan: StepPlan) -> StepResult:
            more_s = step_s + token_s * plan.n_tokens
            time.sleep(more_s)
            result = execute(plan)
            return replace(result, seconds=result.seconds + more_s)

        runner.execute = slowly  # type: ignore[method-assign]

    return slow_down


def test_long_prompts_without_chunks_are_found(model: LiveModel) -> None:
    long = SYSTEM * 42

    async def load(client: EngineClient) -> None:
        async def prompts() -> None:
            for word in WORDS[:3]:
                await asyncio.sleep(0.15)
                assert await answered(client, ask(f"{word} {long}", 2)) is None

        reading = asyncio.create_task(prompts())
        while not reading.done():
            await answer_all(client, [ask(f"{word} tells", 160) for word in WORDS[:4]], at_once=4)
        await reading

    found = findings(
        model,
        load,
        fault=slower(0.0, 0.0001),
        enable_chunked_prefill=False,
        max_model_len=4400,
        max_num_batched_tokens=4500,
    )
    assert set(found) == {"long_prompt"}
    assert found["long_prompt"].setting == "LORIKEET_ENGINE__ENABLE_CHUNKED_PREFILL=true"


def test_short_prompts_on_a_slow_machine_stall_nobody(model: LiveModel) -> None:
    """Two clients with prompts of a hundred tokens, each of which takes as long as thirty tokens of an answer."""
    requests = [ask(f"{word} {SYSTEM}{word}", 12 + 5 * (i % 2)) for i, word in enumerate(WORDS[:6])]

    async def load(client: EngineClient) -> None:
        assert not any(await answer_all(client, requests, at_once=2))

    found = findings(model, load, fault=slower(0.006, 0.003), max_num_batched_tokens=512)
    assert "long_prompt" not in found


def test_one_huge_rank_is_found(model: LiveModel) -> None:
    huge, small = model.digests["huge"], [model.digests[f"small{i}"] for i in range(3)]
    requests = [ask(f"{SYSTEM}{i}", 24, adapter=small[i % 3]) for i in range(18)]

    async def load(client: EngineClient) -> None:
        await asyncio.gather(
            answer_all(client, requests, at_once=6), answer_all(client, [ask("Ahoy", 80, adapter=huge)], at_once=1)
        )

    found = findings(model, load)
    assert set(found) == {"huge_rank"}
    said = evidence(found["huge_rank"])
    assert said["its rank"] == "64"
    assert huge in said["adapter"]
    assert found["huge_rank"].setting == "LORIKEET_MAX_RANK=4"


def test_a_budget_that_starves_prompts_is_found(model: LiveModel) -> None:
    answers: list[asyncio.Task[object]] = []

    async def talks(client: EngineClient) -> None:
        requests = [ask(f"{word} tells", 300) for word in WORDS]
        answers.append(asyncio.create_task(answer_all(client, requests, at_once=30)))
        await asyncio.sleep(0.2)

    async def load(client: EngineClient) -> None:
        await answer_all(client, [ask(f"{word} {SYSTEM * 4}", 2) for word in WORDS[:10]], at_once=2)
        await answers[0]

    found = findings(model, load, warm_up=talks, n_blocks=1024, max_num_seqs=32, max_num_batched_tokens=48)
    assert set(found) == {"prefill_starved"}
    said = evidence(found["prefill_starved"])
    assert said["of it computing the prompt"].endswith(" %")
    setting = found["prefill_starved"].setting
    assert setting is not None
    assert setting.startswith("LORIKEET_ENGINE__MAX_NUM_BATCHED_TOKENS=")
    assert int(setting.partition("=")[2]) > 48


def several(requests: list[GenerationRequest], *, at_once: int = 8) -> Load:
    async def load(client: EngineClient) -> None:
        await answer_all(client, requests, at_once=at_once)

    return load


def test_too_few_seats_beside_an_idle_pool_are_found(model: LiveModel) -> None:
    found = findings(model, several([ask(f"{word} tells", 60) for word in WORDS[:20]], at_once=20), max_num_seqs=2)
    assert set(found) == {"too_few_seats"}
    assert found["too_few_seats"].setting is not None
    assert int(found["too_few_seats"].setting.partition("=")[2]) > 2


def test_a_queue_that_overflows_is_found(model: LiveModel) -> None:
    requests = [ask(f"{word} tells", 60, tenant=f"tenant {i % 5}") for i, word in enumerate(WORDS)]
    found = findings(
        model, several(requests, at_once=30), max_num_seqs=2, max_queued_requests=6, tenant_queue_share=1.0
    )
    assert "overload" in found
    assert found["overload"].setting == "LORIKEET_ENGINE__MAX_QUEUED_REQUESTS=12"
    assert int(evidence(found["overload"])["the queue was full"]) >= 20


def test_a_prefix_cache_that_is_off_is_found(model: LiveModel) -> None:
    requests = [ask(f"{SYSTEM}{word}", 8) for word in WORDS[:16]]
    found = findings(model, several(requests), enable_prefix_caching=False)
    assert set(found) == {"prefix_caching_off"}
    assert found["prefix_caching_off"].setting == "LORIKEET_ENGINE__ENABLE_PREFIX_CACHING=true"


def test_prefixes_that_are_evicted_before_they_are_used_again_are_found(model: LiveModel) -> None:
    prompts = [f"{word * 60} {SYSTEM[:40]}" for word in WORDS[:10]]  # 11 blocks each, of 40
    requests = [ask(prompt, 2) for prompt in prompts * 3]
    found = findings(model, several(requests, at_once=1), n_blocks=40, max_model_len=256)
    assert set(found) == {"prefix_evicted"}
    assert (found["prefix_evicted"].setting or "").startswith("LORIKEET_ENGINE__KV_CACHE_BYTES=")


def test_equal_prompts_under_different_salts_are_found(model: LiveModel) -> None:
    requests = [ask(SYSTEM, 2, salt=bytes([i])) for i in range(16)]
    assert set(findings(model, several(requests, at_once=1))) == {"prefix_split"}


def test_a_cap_on_adapters_beside_free_seats_is_found(model: LiveModel) -> None:
    requests = [ask(f"{SYSTEM}{i}", 60, adapter=model.digests[f"small{i % 4}"]) for i in range(16)]
    found = findings(model, several(requests), max_adapters_per_step=1)
    assert "adapters_per_step" in found
    assert (found["adapters_per_step"].setting or "").startswith("LORIKEET_ENGINE__MAX_ADAPTERS_PER_STEP=")


def test_adapters_that_are_read_from_the_disk_again_are_found(model: LiveModel) -> None:
    requests = [ask(f"{SYSTEM}{i}", 4, adapter=model.digests[f"small{i % 6}"]) for i in range(36)]
    room = int(2.5 * model.sizes["small0"])
    found = findings(model, several(requests, at_once=1), adapter_pool_bytes=room, host_adapter_cache_bytes=room)
    assert "host_cache" in found
    assert (found["host_cache"].setting or "").startswith("LORIKEET_ENGINE__HOST_ADAPTER_CACHE_BYTES=")


def test_requests_that_nobody_puts_on_record_are_found(model: LiveModel) -> None:
    found = findings(model, several([ask(SYSTEM, 1) for _ in range(210)], at_once=20))
    assert set(found) == {"unsettled"}


def test_prompts_that_share_less_than_a_block_are_found(model: LiveModel) -> None:
    requests = [ask(f"{SYSTEM[:24]} {word}, {word}!", 2) for word in WORDS[:16]]
    found = findings(model, several(requests, at_once=1), block_size=32)
    assert set(found) == {"prefix_alignment"}
    assert found["prefix_alignment"].setting == "LORIKEET_ENGINE__BLOCK_SIZE=16"


def test_steps_that_fail_are_found(model: LiveModel) -> None:
    def breaks(engine: LiveEngine) -> None:
        runner = engine.engine.runner
        execute, seen = runner.execute, iter(range(1000))

        def sometimes(plan: StepPlan) -> StepResult:
            if next(seen) % 20 == 19:
                raise ValueError("injected")
            return execute(plan)

        runner.execute = sometimes  # type: ignore[method-assign]

    found = findings(model, several([ask(f"{SYSTEM}{word}", 16) for word in WORDS[:16]]), fault=breaks)
    assert "failed_steps" in found
    assert found["failed_steps"].severity == "critical"


def test_an_engine_that_goes_away_is_found(model: LiveModel) -> None:
    async def scenario(client: EngineClient) -> None:
        watch = EngineWatch(client)
        await watch.sample()
        await watch.sample()
        assert not watch.is_away
        engine.server.stop()
        async with asyncio.timeout(10):
            while not watch.is_away:
                await watch.sample()
        assert watch.window() is None
        found = examine(Surroundings(away_s=30.0), None)
        assert [rule for rule, finding in found.items() if finding] == ["engine_away"]

    with live_engine(model) as engine:
        talk(engine, scenario)
