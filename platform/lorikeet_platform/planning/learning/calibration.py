"""What an engine's own steps say about how long steps take: a fit with honest errors, and the ranges it holds in.

Seconds are a sum of what a step computes, each part with a coefficient that is not negative. Errors are measured on
stretches of time that the fit did not see: neighbours in time are so alike that a random choice would flatter it. The
fit itself is `step_fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from lorikeet_engine.cost import StepShape
from lorikeet_engine.stats import StepSample
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.learning.pace import Ranges, StepSeconds, extent_of
from lorikeet_platform.planning.learning.step_fit import Array, features, fit

MIN_STEPS = 100
STRETCHES, FOLDS = 40, 4  # of so many stretches of time every so manieth is kept out of one of so many fits
HELD_SHARE = 0.9  # of the steps kept out, inside of the error span
IDLE_GAP = 3.0  # steps further apart than so many times their length were not made one after another
# Steps at or beyond a size for it to count as seen, of all and of each fit; at or below it fewer do, since what a sum
# of costs that are not negative says of less lies between nothing and what is known.
ENOUGH, ENOUGH_TO_LEARN, ENOUGH_BELOW = 20, 5, 5
MIXED = ("mixed_batch", "mixed_prefill")  # less of either is between these steps and those with none of it
MOST_OFF = 1.25  # between the usual step of a size and what a fit that did not see it says


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
    fold = np.arange(len(timed)) * STRETCHES // len(timed) % FOLDS
    unseen = _ratios_unseen(x, y, fold)
    errors = np.abs(1 / unseen - 1)
    coefficients = [float(value) for value in fit(x, y)]

    def step_seconds(shape: StepShape) -> float:
        return sum(c * value for c, value in zip(coefficients, features(shape), strict=True))

    outside = (1 - HELD_SHARE) / 2
    return Calibrated(
        step_seconds=step_seconds,
        ranges=ranges_of(shapes, unseen, fold),
        n_steps=len(timed),
        error_span=(float(np.quantile(unseen, outside)), float(np.quantile(unseen, 1 - outside))),
        error_p50=float(np.quantile(errors, 0.5)),
        error_p90=float(np.quantile(errors, 0.9)),
        host_overhead_s=_host_overhead(timed),
    )


def _ratios_unseen(x: Array, y: Array, fold: Array) -> Array:
    """Measured over predicted, of every step by a fit that did not see it."""
    ratios = np.ones(len(y))
    for one in range(FOLDS):
        held = fold == one
        ratios[held] = y[held] / np.maximum(x[held] @ fit(x[~held], y[~held]), 1e-9)
    return ratios


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


def ranges_of(shapes: Sequence[StepShape], unseen: Array, fold: Array) -> Ranges:
    """From where to where of everything that a step is described by there are enough steps that the fit explains.

    Enough at or beyond a size, so that one odd step makes nothing seen, and some of them in every fit, so that the
    errors are of fits that knew of the size.
    """
    extents = [extent_of(shape) for shape in shapes]
    ranges = {}
    for name in {name for extent in extents for name in extent}:
        rows = np.array([row for row, extent in enumerate(extents) if name in extent])
        values = np.array([extents[row][name] for row in rows])
        high = _furthest(values, unseen[rows], fold[rows])
        if high is not None and len(rows) > ENOUGH_BELOW:
            low = 0.0 if name in MIXED else float(np.sort(values)[ENOUGH_BELOW - 1])
            ranges[name] = (min(low, high), high)
    return ranges


def _furthest(values: Array, unseen: Array, fold: Array) -> float | None:
    """The largest value with enough steps at or beyond it that are as long as steps of other sizes let expect."""
    order = np.argsort(-values, kind="stable")
    values, unseen, fold = values[order], unseen[order], fold[order]
    begin = 0
    while begin + ENOUGH <= len(values):
        end = begin + ENOUGH
        while end < len(values) and not _is_learned_from(fold[begin:end]):
            end += 1
        if not _is_learned_from(fold[begin:end]):
            return None
        if 1 / MOST_OFF <= np.median(unseen[begin:end]) <= MOST_OFF:
            return float(values[end - 1])
        begin = end
    return None


def _is_learned_from(fold: Array) -> bool:
    """Whether there are enough steps in each fit, whichever of the stretches it leaves out."""
    return all(np.count_nonzero(fold != one) >= ENOUGH_TO_LEARN for one in range(FOLDS))


def _host_overhead(samples: Sequence[StepSample]) -> float:
    """The usual time from a step's end to the next one's begin, of steps that followed one another."""
    gaps = [
        max(0.0, gap - after.seconds)
        for before, after in pairwise(samples)
        if 0 < (gap := after.end_s - before.end_s) < IDLE_GAP * after.seconds
    ]
    return median(gaps) if gaps else 0.0
