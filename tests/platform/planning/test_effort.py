"""What a plan may cost: bounded work whatever is asked, and turns that keep the gateway's threads free."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from typing import Any

import pytest
from starlette.concurrency import run_in_threadpool

from lorikeet_engine.simulation.effort import Effort, TooMuchWork
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning import desk, prediction
from lorikeet_platform.planning.desk import in_turn
from lorikeet_platform.planning.planner import load_of, make_plan
from lorikeet_platform.planning.schemas import CapacityPlan, PlanQuestion
from lorikeet_platform.planning.service import subject_of

CPU_S = 2.0
MEMORY_KIB = 100 * 1024


def plan_of(**asked: Any) -> CapacityPlan:
    question = PlanQuestion.model_validate({"model": "qwen3-8b", "device": "h200"} | asked)
    load = load_of(question)
    return make_plan(load, subject_of(question, load, None))


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt_tokens": 1000, "output_tokens": 1, "concurrency": 60_000},
        {"prompt_tokens": 30_000, "output_tokens": 1, "requests_per_s": 0.01, "knobs": {"max_num_batched_tokens": 64}},
        {"prompt_tokens": 40_000, "output_tokens": 1, "requests_per_s": 0.001},
        {
            "prompt_tokens": 1000,
            "output_tokens": 1,
            "concurrency": 60_000,
            "knobs": {"max_num_seqs": 60_000, "max_num_batched_tokens": 100_000},
        },
        {"prompt_tokens": 1, "output_tokens": 40_000, "concurrency": 65_536},
        {"prompt_tokens": 1, "output_tokens": 1, "requests_per_s": 1e6},
        {"prompt_tokens": 512, "output_tokens": 64, "concurrency": 64, "adapters": {"count": 100_000, "rank": 1}},
        {"prompt_tokens": 40_000, "output_tokens": 1, "concurrency": 256, "knobs": {"block_size": 1}},
    ],
)
def test_no_question_costs_much(asked: dict[str, Any]) -> None:
    began, held = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert plan_of(**asked).estimate is not None
    assert time.thread_time() - began < CPU_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < MEMORY_KIB


def test_a_simulation_that_costs_more_than_was_thought_is_given_up_for_formulas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {"prompt_tokens": 512, "output_tokens": 64, "concurrency": 4}
    said = "Estimated by formulas: this workload takes too long to simulate."
    assert said not in plan_of(**asked).notes
    monkeypatch.setattr(prediction, "MOST_S", 0.01)
    assert said in plan_of(**asked).notes


def test_turns_and_requests_are_counted_up_to_the_limit() -> None:
    effort = Effort(limit_s=0.01, block_size=16)
    for _ in range(4):
        effort.request(4096)
    with pytest.raises(TooMuchWork):
        effort.request(32_768)
    effort = Effort(limit_s=0.01, block_size=16)
    for _ in range(17):
        effort.turn(60)
    with pytest.raises(TooMuchWork):
        effort.turn(60)


def test_plans_take_turns_and_leave_the_threads_of_health_checks_alone() -> None:
    at_work: set[int] = set()
    most, done, may_end = [0], [0], threading.Event()

    def slow() -> None:
        at_work.add(threading.get_ident())
        most[0] = max(most[0], len(at_work))
        may_end.wait(10)
        at_work.discard(threading.get_ident())
        done[0] += 1

    async def scenario() -> None:
        plans = [asyncio.ensure_future(in_turn(slow)) for _ in range(desk.MOST_WAITING + 1)]
        await asyncio.sleep(0.05)
        with pytest.raises(PlatformError) as caught:
            await in_turn(slow)
        assert (caught.value.code, caught.value.kind.status) == ("overloaded", 503)
        others = [run_in_threadpool(lambda: 1) for _ in range(40)]
        assert await asyncio.wait_for(asyncio.gather(*others), 5) == [1] * 40
        may_end.set()
        await asyncio.gather(*plans)

    asyncio.run(scenario())
    assert (most[0], done[0]) == (1, desk.MOST_WAITING + 1)
