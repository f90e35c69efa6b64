"""What an engine's own steps say about how long steps take: a fit with honest errors, and the ranges it holds in.

Seconds are a sum of what a step computes, each part with a coefficient that is not negative. Errors are measured on
stretches of time that the fit did not see: neighbours in time are so alike that a random choice would flatter it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import numpy.typing as npt

from lorikeet_engine.cost import StepShape
from lorikeet_engine.stats import StepSample
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.pace import Ranges, StepSeconds, extent_of

MIN_STEPS = 100
STRETCHES, HELD_OUT = 20, 4  # of so many stretches of time every so manieth is kept out
WEIGHING_ROUNDS = 15
HUBER = 1.345  # standard deviations up to which errors count in full
MAD_TO_SIGMA = 1.4826  # from the median of errors to a standard deviation
LEAST_SPREAD = 1e-3
SWEEPS = 3000
HELD_SHARE = 0.9  # of the steps kept out, inside of the error span
IDLE_GAP = 3.0  # steps further apart than so many times their length were not made one after another

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """
    Attributes:
        error_span: factors on a prediction that hold 90 % of the steps kept out of the fit.
        error_p50, error_p90: of those steps, |predicted − measured| / measured.
        host_overhead_s: the host's own time between two steps.
    """

    step_seconds: StepSeconds
    ranges: Ranges
    n_steps: int
    error_span: tuple[float, float]
    error_p50: float
    error_p90: float
    host_overhead_s: float


def calibrate(samples: Sequence[StepSample]) -> Calibrated:
    """Learn from the steps an engine remembers, oldest first.

    Raises:
        PlatformError: invalid_value; there are too few.
    """
    timed = [sample for sample in samples if sample.seconds > 0 and sample.n_decode + sample.n_prefill > 0]
    if len(timed) < MIN_STEPS:
        raise PlatformError(
            "invalid_value",
            f"live: the engine remembers {len(timed)} steps, a calibration needs {MIN_STEPS}. Let it serve first.",
            "live",
        )
    shapes = [shape_of(sample) for sample in timed]
    x, y = np.array([features(shape) for shape in shapes]), np.array([sample.seconds for sample in timed])
    stretch = np.arange(len(timed)) * STRETCHES // len(timed)
    held = stretch % HELD_OUT == HELD_OUT - 1
    unseen = y[held] / np.maximum(x[held] @ fit(x[~held], y[~held]), 1e-9)
    errors = np.abs(1 / unseen - 1)
    coefficients = [float(value) for value in fit(x, y)]

    def step_seconds(shape: StepShape) -> float:
        return sum(c * value for c, value in zip(coefficients, features(shape), strict=True))

    outside = (1 - HELD_SHARE) / 2
    return Calibrated(
        step_seconds=step_seconds,
        ranges=ranges_of(shapes),
        n_steps=len(timed),
        error_span=(float(np.quantile(unseen, outside)), float(np.quantile(unseen, 1 - outside))),
        error_p50=float(np.quantile(errors, 0.5)),
        error_p90=float(np.quantile(errors, 0.9)),
        host_overhead_s=_host_overhead(timed),
    )


def shape_of(sample: StepSample) -> StepShape:
    return StepShape(
        n_decode=sample.n_decode,
        decode_context=sample.decode_context,
        n_prefill=sample.n_prefill,
        prefill_pairs=sample.prefill_pairs,
        prefill_context=sample.prefill_context,
        n_sampled=sample.n_sampled,
        lora_bytes=sample.lora_bytes,
        lora_flops=sample.lora_flops,
    )


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
    """Least squares on relative errors with coefficients that are not negative; what is far off counts less (Huber).

    Relative to what was predicted, in a few rounds: dividing by what was measured would let the steps that were fast
    by chance count most, and every prediction would be low. Far off are steps that something else on the machine
    made long, and those say nothing about what a step computes; they stay in the errors.
    """
    scale, weights = y.copy(), np.ones(len(y))
    coefficients = np.zeros(x.shape[1])
    for _ in range(WEIGHING_ROUNDS):
        per_row = np.sqrt(weights) / scale
        coefficients = _not_negative(x * per_row[:, None], y * per_row)
        scale = np.maximum(x @ coefficients, 0.1 * y)
        off = np.abs(y / scale - 1)
        usual = max(MAD_TO_SIGMA * float(np.median(off)), LEAST_SPREAD)
        weights = np.minimum(1.0, HUBER * usual / np.maximum(off, 1e-12))
    return coefficients


def _not_negative(x: Array, y: Array) -> Array:
    """Coordinate descent over columns of equal length; a coefficient that would fall below 0 stays there."""
    lengths = np.sqrt((x * x).sum(axis=0))
    used = np.flatnonzero(lengths)
    columns = x[:, used] / lengths[used]
    gram, right = columns.T @ columns, columns.T @ y
    found = np.zeros(len(used))
    for _ in range(SWEEPS):
        before = found.copy()
        for i in range(len(used)):
            found[i] = max(0.0, found[i] + right[i] - gram[i] @ found)
        if np.abs(found - before).max() < 1e-9 * max(1e-9, float(np.abs(found).max())):
            break
    coefficients = np.zeros(x.shape[1])
    coefficients[used] = found / lengths[used]
    return coefficients


def ranges_of(shapes: Sequence[StepShape]) -> Ranges:
    """The least and the most of everything that a step is described by."""
    seen: dict[str, list[float]] = {}
    for shape in shapes:
        for name, value in extent_of(shape).items():
            seen.setdefault(name, []).append(value)
    return {name: (min(values), max(values)) for name, values in seen.items()}


def _host_overhead(samples: Sequence[StepSample]) -> float:
    """The usual time from a step's end to the next one's begin, of steps that followed one another."""
    gaps = [
        max(0.0, gap - after.seconds)
        for before, after in pairwise(samples)
        if 0 < (gap := after.end_s - before.end_s) < IDLE_GAP * after.seconds
    ]
    return median(gaps) if gaps else 0.0
