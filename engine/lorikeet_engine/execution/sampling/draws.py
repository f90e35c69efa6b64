"""Draws of many rows at once, as tensor operations, so that a device makes them without the host.

Means the same as `sampler`, row by row: the filters of Hugging Face in its order, and a draw that inverts the
cumulative distribution, in the vocabulary's order, at a number that depends on (seed, index of the token) alone. How a
device sums may decide otherwise about a token at the very edge of `top_p` or between two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lorikeet_engine.execution.streams.pinned import upload_floats
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.sizing.step_memory import DRAWN_AT_ONCE


def draw(logits: torch.Tensor, params: Sequence[SamplingParams], numbers: Sequence[float]) -> torch.Tensor:
    """One token, int64 [n], for each row of [n, vocab]; `numbers` are from [0, 1), temperatures above 0."""
    lots = [slice(first, first + DRAWN_AT_ONCE) for first in range(0, len(params), DRAWN_AT_ONCE)]
    return torch.cat([_draw(logits[lot], params[lot], numbers[lot]) for lot in lots])


def _draw(logits: torch.Tensor, params: Sequence[SamplingParams], numbers: Sequence[float]) -> torch.Tensor:
    weights = probabilities(logits, params).double().cumsum(-1)
    targets = upload_floats(numbers, logits.device)[:, None] * weights[:, -1:]
    return torch.searchsorted(weights, targets, right=True)[:, 0].clamp_(max=logits.shape[1] - 1)


def probabilities(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """The distributions that draws are made from, float32 [n, vocab]; tokens filtered out have probability 0."""
    device, vocab = logits.device, logits.shape[1]
    # From the largest down and in float64: a temperature close to 0 then picks it, instead of dividing to inf - inf.
    wide = logits.double()
    temperatures = upload_floats([row.temperature for row in params], device)[:, None]
    scores = ((wide - wide.amax(-1, keepdim=True)) / temperatures).float()
    if any(0 < row.top_k < vocab for row in params):
        scores = _keep_top_k(scores, [row.top_k if 0 < row.top_k < vocab else vocab for row in params])
    found = scores.softmax(dim=-1)
    if any(row.top_p < 1 for row in params):
        found = _keep_top_p(found, [row.top_p for row in params])
    return found


def _keep_top_k(scores: torch.Tensor, ranks: Sequence[int]) -> torch.Tensor:
    """Ties with the k-th stay."""
    largest = scores.topk(min(max(ranks), scores.shape[1]), dim=-1).values
    places = upload_floats([rank - 1 for rank in ranks], scores.device).long()[:, None]
    return scores.masked_fill(scores < largest.gather(1, places), float("-inf"))


def _keep_top_p(found: torch.Tensor, masses: Sequence[float]) -> torch.Tensor:
    """The smallest set of the likeliest whose mass reaches `top_p`, at least one; a mass of 1 keeps all."""
    bounds = upload_floats([mass if mass < 1 else float("inf") for mass in masses], found.device)[:, None]
    likeliest, order = found.sort(dim=-1, descending=True, stable=True)
    before = likeliest.cumsum(-1) - likeliest
    dropped = before >= bounds.float()
    dropped[:, 0] = False
    return found.masked_fill(torch.zeros_like(dropped).scatter_(1, order, dropped), 0.0)
