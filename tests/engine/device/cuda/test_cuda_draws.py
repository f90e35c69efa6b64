"""Draws of many rows at once mean what the draws of one row do."""

from __future__ import annotations

import pytest
import torch

from lorikeet_engine.execution.sampling.draws import draw, probabilities
from lorikeet_engine.execution.sampling.sampler import filtered_probabilities, sample, uniform
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams
from lorikeet_engine.sizing.step_memory import DRAWN_AT_ONCE

VOCAB = 61
PARAMS = [
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=5)
    for temperature in (1e-30, 0.3, 1.7)
    for top_k in (0, 1, 5, VOCAB, 1000)
    for top_p in (1.0, 0.9, 1e-6)
]


def some_logits(n: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(n, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def test_filters_of_a_batch_are_those_of_each_row() -> None:
    logits = some_logits(len(PARAMS))
    logits[3, 7:10] = logits[3].max()  # ties at the top
    found = probabilities(logits, PARAMS)
    for row, params in enumerate(PARAMS):
        torch.testing.assert_close(found[row], filtered_probabilities(logits[row], params), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_of_a_batch_are_those_of_each_row(dtype: torch.dtype) -> None:
    n = 2 * DRAWN_AT_ONCE + 3
    logits = some_logits(n).to(dtype)
    params = [PARAMS[15 + index % 30] for index in range(n)]
    found = draw(logits, params, [uniform(row.seed, index) for index, row in enumerate(params)])
    rows = [
        PlanRow(str(index), Phase.DECODE, (1,), 0, (1,), None, -1, True, row, index) for index, row in enumerate(params)
    ]
    assert found.tolist() == list(sample(logits, rows, CpuOps()).values())


def test_a_token_of_probability_zero_is_never_drawn_at_the_edges() -> None:
    logits = torch.full((3, 4), float("-inf"))
    logits[:, 1], logits[:, 2] = 0.0, 0.0
    params = [SamplingParams(temperature=1.0)] * 3
    assert draw(logits, params, [0.0, 0.5, 1 - 2**-53]).tolist() == [1, 2, 2]
