"""A sum over what steps compute, fitted to how long they took. Knows nothing of time, ranges or trust."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lorikeet_engine.cost import StepShape

WEIGHING_ROUNDS = 15
HUBER = 1.345  # standard deviations up to which errors count in full
MAD_TO_SIGMA = 1.4826  # from the median of errors to a standard deviation
LEAST_SPREAD = 1e-3
MOST_CHANGES = 40  # of which coefficients there are; a dozen do
NO_HELP = 1e-10
OF_A_SIZE = (2, 3, 5)  # rows, tokens of prompts, context: steps alike in all of them are peers

Array = npt.NDArray[Any]


def features(shape: StepShape) -> tuple[float, ...]:
    """What a step's seconds are a sum of; rows that decode cost otherwise than tokens of prompts."""
    return (
        1.0,
        float(shape.n_prefill > 0),
        shape.n_decode,
        shape.n_prefill,
        shape.prefill_pairs,
        shape.decode_context,
        shape.prefill_context,
        float(shape.lora_bytes > 0),
        shape.lora_bytes,
        shape.lora_flops,
    )


def fit(x: Array, y: Array) -> Array:
    """Least squares on relative errors with coefficients that are not negative; odd ones among peers count less.

    Relative to what was predicted, in a few rounds: dividing by what was measured would let the steps that were fast
    by chance count most, and every prediction would be low. A step far off its peers, those of about its size, was
    made long by something else on the machine (Huber's weights). Where all of a size are far off, that is what such
    steps take, however rare they are, and they count in full.
    """
    scale, weights, peers = y.copy(), np.ones(len(y)), _peers(x)
    coefficients = np.zeros(x.shape[1])
    for _ in range(WEIGHING_ROUNDS):
        per_row = np.sqrt(weights) / scale
        coefficients = _not_negative(x * per_row[:, None], y * per_row)
        scale = np.maximum(x @ coefficients, 0.1 * y)
        off = np.abs(_off_peers(y / scale, peers))
        usual = max(MAD_TO_SIGMA * float(np.median(off)), LEAST_SPREAD)
        weights = np.minimum(1.0, HUBER * usual / np.maximum(off, 1e-12))
    return coefficients


def _peers(x: Array) -> Array:
    """A number for each step; those of one number are equal to a factor of two in everything that makes a size."""
    sizes = np.ceil(np.log2(1 + x[:, OF_A_SIZE]))
    return np.unique(sizes, axis=0, return_inverse=True)[1].reshape(-1)


def _off_peers(ratios: Array, peers: Array) -> Array:
    """How far each ratio is from the median one of its peers, as a share of that."""
    order, counts = np.lexsort((ratios, peers)), np.bincount(peers)
    begins = np.cumsum(counts) - counts
    middle = (ratios[order][begins + (counts - 1) // 2] + ratios[order][begins + counts // 2]) / 2
    off: Array = ratios / middle[peers] - 1
    return off


def _not_negative(x: Array, y: Array) -> Array:
    """Least squares with coefficients of at least 0 (Lawson and Hanson): they come in one by one, each time the one
    that helps most, and those that would fall below 0 go out again. Columns are brought to equal length before."""
    lengths = np.sqrt((x * x).sum(axis=0))
    used = np.flatnonzero(lengths)
    columns = x[:, used] / lengths[used]
    gram, right = columns.T @ columns, columns.T @ y
    found, is_in = np.zeros(len(used)), np.zeros(len(used), dtype=bool)
    for _ in range(MOST_CHANGES):
        helps = np.where(is_in, 0.0, right - gram @ found)
        if helps.max() <= NO_HELP * np.abs(right).max():
            break
        is_in[int(helps.argmax())] = True
        found = _settled(gram, right, found, is_in)
    coefficients = np.zeros(x.shape[1])
    coefficients[used] = found / lengths[used]
    return coefficients


def _settled(gram: Array, right: Array, found: Array, is_in: Array) -> Array:
    """The best values of those that are in; as long as one of them is not above 0, the first on the way goes out."""
    while is_in.any():
        best = np.zeros(len(found))
        best[is_in] = np.linalg.lstsq(gram[np.ix_(is_in, is_in)], right[is_in], rcond=None)[0]
        below = is_in & (best <= 0)
        if not below.any():
            return best
        way = found[below] / np.maximum(found[below] - best[below], 1e-300)
        found = np.where(is_in, found + way.min() * (best - found), 0.0)
        is_in[np.flatnonzero(below)[way.argmin()]] = False
        is_in &= found > 0
        found = np.where(is_in, found, 0.0)
    return np.zeros(len(found))
