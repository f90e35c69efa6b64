"""Drawing tokens: the right distribution, and the same token whoever shares the step."""

from __future__ import annotations

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from lorikeet_engine.execution.sampling.sampler import filtered_probabilities, sample, uniform
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.scheduling.plan import Phase, PlanRow, SamplingParams

OPS = CpuOps()

VOCAB = 50


def a_row(name: str, sampling: SamplingParams, n_generated: int = 0) -> PlanRow:
    return PlanRow(name, Phase.DECODE, (1,), 0, (1,), None, -1, True, sampling, n_generated)


def some_logits(n_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def hugging_face(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    warpers = [TemperatureLogitsWarper(params.temperature)] if params.temperature != 1 else []
    warpers += [TopKLogitsWarper(params.top_k)] if params.top_k else []
    warpers += [TopPLogitsWarper(params.top_p)] if params.top_p < 1 else []
    scores = logits[None]
    for warp in warpers:
        scores = warp(None, scores)
    return scores[0].softmax(-1)


@pytest.mark.parametrize("temperature", [1e-3, 1e-38, 5e-324])
def test_a_temperature_close_to_zero_takes_the_likeliest_token_too(temperature: float) -> None:
    logits = torch.tensor([[3.0, 9.0, 1.0, 0.0]])
    assert sample(logits, [a_row("r", SamplingParams(temperature=temperature))], OPS) == {"r": 1}


def test_temperature_zero_takes_the_likeliest_token() -> None:
    logits = some_logits(3)
    found = sample(logits, [a_row(str(i), SamplingParams(seed=i)) for i in range(3)], OPS)
    assert [found[str(i)] for i in range(3)] == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 5, VOCAB, 1000])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 1e-6])
def test_filters_mean_what_they_mean_in_transformers(temperature: float, top_k: int, top_p: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    for seed in range(5):
        logits = some_logits(1, seed)[0]
        found = filtered_probabilities(logits, params)
        kept = found / found.sum()
        assert torch.allclose(kept, hugging_face(logits, params), atol=1e-6)


def test_ties_with_the_last_token_of_top_k_stay() -> None:
    logits = torch.tensor([2.0, 1.0, 1.0, 1.0, 0.0])
    params = SamplingParams(temperature=1.0, top_k=2)
    assert (filtered_probabilities(logits, params) > 0).tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("params", [{"temperature": 1.0}, {"temperature": 0.8, "top_k": 12, "top_p": 0.9}])
def test_draws_follow_the_distribution(params: dict[str, float]) -> None:
    """Chi-squared over 4000 draws of one request; the seed is fixed, so the test cannot fail by chance."""
    n_draws, sampling = 4000, SamplingParams(seed=12, **params)  # type: ignore[arg-type]
    logits = some_logits(1, 3)
    rows = [a_row(str(i), sampling, n_generated=i) for i in range(n_draws)]
    tokens = torch.tensor(list(sample(logits.expand(n_draws, -1), rows, OPS).values()))
    probabilities = hugging_face(logits[0], sampling)
    counts = torch.bincount(tokens, minlength=VOCAB).double()
    assert counts[probabilities == 0].sum() == 0
    expected = probabilities.double() * n_draws
    frequent = expected >= 5
    chi_squared = float(((counts - expected) ** 2 / expected)[frequent].sum())
    degrees = int(frequent.sum()) - 1
    assert chi_squared < degrees + 4 * (2 * degrees) ** 0.5


def test_a_draw_depends_on_seed_and_index_only() -> None:
    logits = some_logits(4)
    sampling = SamplingParams(temperature=1.0, seed=77)
    alone = sample(logits[2:3], [a_row("me", sampling, 5)], OPS)["me"]
    rows = [a_row(str(i), SamplingParams(temperature=1.0, seed=i), i) for i in range(4)]
    rows[2] = a_row("me", sampling, 5)
    assert sample(logits, rows, OPS)["me"] == alone
    assert sample(logits.flip(0), rows[::-1], OPS)["me"] == alone


def test_seeds_and_indices_give_independent_numbers() -> None:
    numbers = {uniform(seed, index) for seed in (0, 1, -1, 1 << 63, 3 << 70) for index in range(100)}
    assert len(numbers) == 500
    assert all(0 <= number < 1 for number in numbers)


def test_rows_that_are_not_finite_are_left_out_and_harm_nobody() -> None:
    logits = some_logits(3)
    logits[1, 7] = float("nan")
    found = sample(logits, [a_row(str(i), SamplingParams(temperature=1.0)) for i in range(3)], OPS)
    assert sorted(found) == ["0", "2"]


def test_a_token_of_probability_zero_is_never_drawn_at_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.full((1, 4), float("-inf"))
    logits[0, 1], logits[0, 2] = 0.0, 0.0
    for number, token in ((0.0, 1), (0.5, 2), (1 - 2**-53, 2)):
        monkeypatch.setattr("lorikeet_engine.execution.sampling.sampler.uniform", lambda *_, n=number: n)
        assert sample(logits, [a_row("r", SamplingParams(temperature=1.0))], OPS) == {"r": token}


def test_the_sequences_of_one_request_draw_differently_and_repeatably() -> None:
    """Sequence i of a request with n > 1 has the seed `seed + (i << 64)`."""
    logits = torch.zeros(1, VOCAB).expand(4, -1)
    rows = [a_row(str(i), SamplingParams(temperature=1.0, seed=(1 << 63) + (i << 64)), 9) for i in range(4)]
    numbers = {uniform(row.sampling.seed, index) for row in rows for index in range(50)}
    assert len(numbers) == 200
    assert sample(logits, rows, OPS) == sample(logits, rows, OPS)
    assert len(set(sample(logits, rows, OPS).values())) > 1
