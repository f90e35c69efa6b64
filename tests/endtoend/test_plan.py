"""Live plans of an engine that serves: how many run at once is predicted exactly, and what was not seen is refused."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from lorikeet_engine.client import EngineClient
from lorikeet_engine.scheduling.plan import StepPlan, StepResult
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.learning.calibration import calibrate
from lorikeet_platform.planning.planner import load_of, predicted
from lorikeet_platform.planning.schemas import CapacityPlan, PlanQuestion
from lorikeet_platform.planning.service import plan_for
from lorikeet_platform.planning.subject import running_subject
from tests.support.live_engine import BLOCK, MODEL, LiveEngine, LiveModel, answered, ask, live_engine, live_model, talk

pytestmark = pytest.mark.slow

OUTPUT, POOL_BLOCKS, SEATS = 40, 60, 12
# Those that fill the pool do so to the last block and no further: an engine that has just preempted lets fewer run.
FITTED = ((1, 64), (12, 32), (4, 160), (2, 300), (4, 200), (1, 32), (3, 264), (3, 96))
SHORT_TURNS = 40  # enough steps with prompts of every size, beside few that decode alone: those push others out
STEP_S, TOKEN_S = 0.006, 0.00005
PREDICTED = ((4, 100), (9, 48), (12, 176))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LiveModel:
    return live_model(tmp_path_factory.mktemp("live"))


async def serve(client: EngineClient, clients: int, prompt: int, *, turns: int = 3, short: bool = False) -> int:
    """A closed loop of prompts of their own; the most that ran at once. Short answers are of another length for each
    client, so that many prompts come while others are in the middle of their answers."""
    since = (await client.steps()).now_s

    async def one(number: int) -> None:
        for turn in range(turns):
            salt = f"{clients}/{prompt}/{number}/{turn}/{short}".encode()
            assert await answered(client, ask("x" * prompt, 4 + number if short else OUTPUT, salt=salt)) is None

    await asyncio.gather(*map(one, range(clients)))
    return max(step.running for step in (await client.steps(since)).samples)


def take_even_times(engine: LiveEngine) -> None:
    """A step takes as long as follows from what it computes: a busy machine teaches the plan nothing else."""
    runner = engine.engine.runner
    execute = runner.execute

    def evenly(plan: StepPlan) -> StepResult:
        result, seconds = execute(plan), STEP_S + TOKEN_S * plan.n_tokens
        time.sleep(max(0.0, seconds - result.seconds))
        return replace(result, seconds=seconds)

    runner.execute = evenly  # type: ignore[method-assign]


def question(clients: int, prompt: int, **more: object) -> PlanQuestion:
    return PlanQuestion.model_validate(
        {"prompt_tokens": prompt, "output_tokens": OUTPUT, "concurrency": clients, "live": True} | more
    )


def test_the_most_at_once_is_predicted_exactly_and_what_was_not_seen_is_refused(model: LiveModel) -> None:
    measured: list[int] = []
    expected: list[int] = []
    refused: list[PlatformError] = []
    plans: list[CapacityPlan] = []

    async def scenario(client: EngineClient) -> None:
        watch = EngineWatch(client)
        await watch.sample()
        for clients, prompt in FITTED:
            await serve(client, clients, prompt)
            await serve(client, clients, prompt, turns=SHORT_TURNS, short=True)
        await watch.sample()
        calibrated = calibrate((await client.steps()).samples)
        subject = running_subject(MODEL, await client.design(), {}, 1)
        plans.append(await plan_for(question(*PREDICTED[0]), client, watch))
        for case in PREDICTED:
            expected.append(predicted(subject, load_of(question(*case)), calibrated).peak_running)
        for case in PREDICTED:
            measured.append(await serve(client, *case))
        for asked in (question(4, 450), question(4, 100, adapters={"count": 2, "rank": 4})):
            with pytest.raises(PlatformError) as caught:
                await plan_for(asked, client, watch)
            refused.append(caught.value)

    settings = {"max_num_seqs": SEATS, "max_num_batched_tokens": 512, "tenant_queue_share": 1.0}
    with live_engine(model, n_blocks=POOL_BLOCKS, **settings) as engine:
        take_even_times(engine)
        talk(engine, scenario, within_s=120.0)
    assert measured == expected
    assert measured[:2] == [4, 9]
    assert measured[2] < PREDICTED[2][0]  # the pool is what bounds it
    assert [error.param for error in refused] == ["prompt_tokens", "adapters"]
    assert all("has only been seen at" in error.message for error in refused)
    plan = plans[0]
    assert (plan.basis, plan.pool_tokens) == ("live", POOL_BLOCKS * BLOCK)
    assert sum(row.bytes for row in plan.memory) == plan.available_bytes
    assert plan.calibration is not None
    assert {row.name for row in plan.calibration.measured} == {"ttft", "itl", "e2e", "running"}
