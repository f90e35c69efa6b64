"""What requests have cost, as an engine's clients hear it: whole, once, and together what its figures say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from lorikeet_engine.client import EngineClient, RequestCounts
from lorikeet_engine.cost_vector import COSTS, CostVector
from tests.engine.socket.conftest import StartEngine, answer, generation_request, with_client
from tests.support.costs import summed


async def over(client: EngineClient, names: Sequence[str]) -> list[RequestCounts]:
    """What these have used, once all of it is known."""
    async with asyncio.timeout(5):
        while True:
            found = list(await client.counts(names))
            if all(each.state != "running" for each in found):
                return found
            await asyncio.sleep(0.01)


def assert_same(told: CostVector, totals: CostVector) -> None:
    for name in COSTS:
        assert getattr(told, name) == pytest.approx(getattr(totals, name)), name


@pytest.mark.parametrize("overlaps", [False, True], ids=["waits", "overlaps"])
def test_costs_of_finished_aborted_and_parallel_answers_are_the_engines_totals(
    start_engine: StartEngine, byte_model_dir: Path, overlaps: bool
) -> None:
    async def scenario(client: EngineClient) -> None:
        await answer(await client.generate(generation_request("one", adapter_digest="red")))
        await answer(await client.generate(generation_request("three", n=3, prompt=(9, 8), max_tokens=4)))
        for name in ("left", "left-too"):
            generation = await client.generate(generation_request(name, n=2, max_tokens=100))
            async for _ in generation:
                if generation.usage.completion_tokens >= 6:
                    break
            await generation.close()
        names = ["one", "three", "left", "left-too"]
        found = await over(client, names)
        assert {each.request_id for each in found} == set(names)
        costs = [each.cost for each in found if each.cost]
        assert len(costs) == 4
        assert_same(summed(costs), (await client.stats()).costs)
        assert {each.request_id: each.cost for each in await client.counts(names)} == {
            each.request_id: each.cost for each in found
        }, "asking adds nothing"

    with_client(start_engine(overlaps=overlaps), byte_model_dir, scenario)


def test_a_running_requests_cost_is_not_told(start_engine: StartEngine, byte_model_dir: Path) -> None:
    engine = start_engine()
    engine.parts.loader.delay = 10**9

    async def scenario(client: EngineClient) -> None:
        waiting = await client.generate(generation_request("waits", adapter_digest="slow"))
        (known,) = await client.counts(["waits"])
        assert (known.state, known.cost) == ("running", None)
        await waiting.close()
        (known,) = await over(client, ["waits"])
        assert known.cost == CostVector()

    with_client(engine, byte_model_dir, scenario)
