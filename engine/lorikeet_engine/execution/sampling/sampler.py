"""From logits to token ids.

The filters are those of Hugging Face, in its order: temperature, top-k (ties with the k-th stay), top-p (the smallest
set of most likely tokens whose mass reaches `top_p`, at least one). The draw inverts the cumulative distribution at a
number that depends on (seed, index of the token) alone, so neither companions nor chunking nor order can change it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.scheduling.plan import PlanRow, SamplingParams

SEED_MASK = (1 << 128) - 1


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1): Philox-4x64 keyed by the seed, counting tokens."""
    generator = np.random.Philox(key=seed & SEED_MASK, counter=[0, 0, 0, index])
    return float(np.random.Generator(generator).random())


def sample(logits: torch.Tensor, rows: Sequence[PlanRow], ops: Ops) -> dict[str, int]:
    """One token for each row of logits [S, vocab].

    A row whose logits are not finite is left out: its own adapter or context overflowed, which is no reason to fail
    the others.
    """
    if not rows:
        return {}
    greedy, is_finite = ops.greedy(logits=logits)
    sampled: dict[str, int] = {}
    for index, (row, token, finite) in enumerate(zip(rows, greedy.tolist(), is_finite.tolist(), strict=True)):
        if finite:
            is_greedy = row.sampling.temperature == 0
            sampled[row.request_id] = token if is_greedy else _draw(logits[index], row.sampling, row.n_generated)
    return sampled


def _draw(logits: torch.Tensor, params: SamplingParams, index: int) -> int:
    weights = filtered_probabilities(logits, params).double().cumsum(0).numpy()
    token = int(np.searchsorted(weights, uniform(params.seed, index) * weights[-1], side="right"))
    return min(token, len(weights) - 1)


def filtered_probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """The distribution that one draw is made from, float32 [vocab]; tokens filtered out have probability 0."""
    # From the largest down and in float64: a temperature close to 0 then picks it, instead of dividing to inf - inf.
    scores = ((logits.double() - logits.max().double()) / params.temperature).float()
    if 0 < params.top_k < scores.numel():
        kept = scores.topk(params.top_k).values[-1]
        scores = scores.masked_fill(scores < kept, float("-inf"))
    probabilities = scores.softmax(dim=-1)
    if params.top_p >= 1:
        return probabilities
    likeliest, order = probabilities.sort(descending=True, stable=True)
    before = likeliest.cumsum(0) - likeliest
    dropped = before >= params.top_p
    dropped[0] = False
    probabilities[order[dropped]] = 0.0
    return probabilities
