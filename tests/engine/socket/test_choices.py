"""Several answers to one prompt: one submit, all or nothing, and each answer with an end of its own."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.client import EngineClient, Generation, SamplingParams, Usage
from lorikeet_engine.errors import EngineFailure, InvalidRequest
from lorikeet_engine.protocol import MAX_CHOICES, sequence_id
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from tests.engine.socket.conftest import StartEngine, eventually, generation_request, is_given_back, with_client


async def answers(generation: Generation) -> tuple[dict[int, str], dict[int, str]]:
    """Texts and finish reasons by choice."""
    texts: defaultdict[int, str] = defaultdict(str)
    reasons: dict[int, str] = {}
    async for delta in generation:
        texts[delta.index] += delta.text
        if delta.finish_reason:
            reasons[delta.index] = delta.finish_reason
    return texts, reasons


def say(engine: Any, client: EngineClient, *, pause_s: float = 0.0) -> None:
    """Let the first answer be a, a, a …, the second b, b, b … and so on."""
    runner, execute = engine.parts.runner, engine.parts.runner.execute
    letters = {sequence_id("r", index): client.tokenizer.encode("abcdefgh"[index])[0] for index in range(8)}

    def speaking(plan: StepPlan) -> StepResult:
        time.sleep(pause_s)
        result: StepResult = execute(plan)
        return StepResult(plan.step_id, {name: letters[name] for name in result.sampled}, result.seconds)

    runner.execute = speaking


def test_three_answers_share_a_prompt_that_is_billed_once(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        say(engine, client)
        generation = await client.generate(generation_request(n=3, max_tokens=4))
        texts, reasons = await answers(generation)
        assert texts == {0: "aaaa", 1: "bbbb", 2: "cccc"}
        assert reasons == dict.fromkeys(range(3), "length")
        assert generation.usage == Usage(3, 12)
        await eventually(lambda: is_given_back(engine))

    with_client(engine, byte_model_dir, scenario)


def test_greedy_answers_are_equal_and_each_draws_with_its_own_seed(
    start_engine: StartEngine, byte_model_dir: Path
) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        sampling = SamplingParams(temperature=0.0, seed=7)
        texts, _ = await answers(await client.generate(generation_request(n=3, sampling=sampling)))
        assert texts[0] == texts[1] == texts[2]

    with_client(engine, byte_model_dir, scenario)
    seeds = {row.request_id: row.sampling.seed for plan in engine.parts.runner.plans for row in plan.rows}
    assert seeds == {"r": 7, "r#1": 7 + (1 << 64), "r#2": 7 + (2 << 64)}


@pytest.mark.parametrize("index", [0, 1])
def test_a_stop_string_ends_its_own_answer_and_no_other(
    start_engine: StartEngine, byte_model_dir: Path, index: int
) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        say(engine, client, pause_s=0.003)
        generation = await client.generate(generation_request(n=3, max_tokens=60, stop=("abc"[index] * 2,)))
        texts, reasons = await answers(generation)
        assert texts.pop(index) == ""
        assert reasons.pop(index) == "stop"
        assert {len(text) for text in texts.values()} == {60}
        assert set(reasons.values()) == {"length"}
        assert generation.usage == Usage(3, 2 + 60 + 60)

    with_client(engine, byte_model_dir, scenario)
    stopped = [
        row for plan in engine.parts.runner.plans for row in plan.rows if row.request_id == sequence_id("r", index)
    ]
    assert len(stopped) < 60, "the engine went on with an answer that had ended"


def test_a_closed_generation_stops_all_its_answers(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(n=4, max_tokens=120))
        async for _ in generation:
            break
        await generation.close()
        await eventually(lambda: not engine.parts.loop.has_work)
        assert is_given_back(engine)

    with_client(engine, byte_model_dir, scenario)


def test_when_there_is_no_room_for_all_answers_none_is_begun(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine(max_queued_requests=2)

    async def scenario(client: EngineClient) -> None:
        generation = await client.generate(generation_request(n=3))
        with pytest.raises(InvalidRequest, match="holds 2 answers, not 3"):
            await answers(generation)
        assert generation.usage == Usage(0, 0)
        assert not engine.parts.loop.has_work
        assert (await answers(await client.generate(generation_request("two", n=2))))[1] == {0: "length", 1: "length"}

    with_client(engine, byte_model_dir, scenario)


def test_one_broken_answer_ends_the_request_and_frees_the_rest(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()
    engine.parts.runner.not_finite.add("r#1")

    async def scenario(client: EngineClient) -> None:
        with pytest.raises(EngineFailure):
            await answers(await client.generate(generation_request(n=3, max_tokens=120)))
        await eventually(lambda: not engine.parts.loop.has_work)
        assert is_given_back(engine)

    with_client(engine, byte_model_dir, scenario)


def test_more_answers_than_allowed_are_refused(start_engine: StartEngine, byte_model_dir: Path) -> None:
    async def scenario(client: EngineClient) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            await answers(await client.generate(generation_request(n=MAX_CHOICES + 1)))
        assert refusal.value.param == "n"

    with_client(start_engine(), byte_model_dir, scenario)
