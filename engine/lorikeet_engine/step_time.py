"""How long the next step will take, learned from the steps that ran.

Owns one linear model of five coefficients: a fixed part, computed tokens, (query, key) pairs of prompts, the context of
decode rows, and adapter bytes. It starts where the roofline of the device's constants puts it. It knows no clock and no
request; what a step computes is a `StepShape`.
"""

from __future__ import annotations

from collections.abc import Sequence

from lorikeet_engine.cost import DeviceProfile, ModelCost, StepShape, roofline_seconds

FORGETTING = 0.995  # a step counts half as much after 138 more
SEED_WEIGHT = 4.0  # the seed counts as much as so many steps
ERROR_WEIGHT = 0.05  # of the newest step in the running error
N = 5

Matrix = list[list[float]]  # symmetric, only the lower triangle is kept


class StepTimeModel:
    """Recursive least squares on relative errors, with forgetting.

    Plain forgetting loses what it is not shown: after an hour of decoding nothing would be known about prompts and the
    first one would throw the model off. So the information matrix never falls below what the seed put in: it forgets
    towards that, while coefficients that nothing speaks about stay as they are.

    Errors are measured against the larger of prediction and measurement. So a step of 20 ms counts as much as one of
    2 s, and one that a page fault made a hundred times too long moves the model little.

    Attributes:
        error: running mean of |predicted − measured| / measured.
    """

    def __init__(self, cost: ModelCost, profile: DeviceProfile) -> None:
        shapes = _seed_shapes(cost)
        seconds = [roofline_seconds(cost, profile, shape) for shape in shapes]
        features = [_features(shape) for shape in shapes]
        self._units: list[float] = [max(column) for column in zip(*features, strict=True)]
        rows = [
            [value / unit / second for value, unit in zip(row, self._units, strict=True)]
            for row, second in zip(features, seconds, strict=True)
        ]
        gram = [[sum(row[i] * row[j] for row in rows) for j in range(i + 1)] for i in range(N)]
        fitted = _solve(gram, [sum(column) for column in zip(*rows, strict=True)])
        self._weights: list[float] = [max(0.0, value) / unit for value, unit in zip(fitted, self._units, strict=True)]
        self._seed_information = [[value * SEED_WEIGHT / len(rows) for value in row] for row in gram]
        self._information = [row[:] for row in self._seed_information]
        self.error = 0.0

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Seconds a step, a token, a pair, a token of decode context, an adapter byte."""
        return tuple(self._weights)

    def predict(self, shape: StepShape) -> float:
        fixed, token, pair, context, lora = self._weights
        return (
            fixed
            + token * (shape.n_decode + shape.n_prefill)
            + pair * shape.prefill_pairs
            + context * shape.decode_context
            + lora * shape.lora_bytes
        )

    def observe(self, shape: StepShape, seconds: float) -> None:
        """Learn from a step that took `seconds`; a measurement that is no positive time is left out."""
        if not 0.0 < seconds < float("inf"):
            return
        predicted = self.predict(shape)
        self.error += ERROR_WEIGHT * (abs(predicted - seconds) / seconds - self.error)
        scale = max(predicted, seconds)
        row = [value / unit / scale for value, unit in zip(_features(shape), self._units, strict=True)]
        for i, (known, seed) in enumerate(zip(self._information, self._seed_information, strict=True)):
            value = row[i]
            for j in range(i + 1):
                known[j] = FORGETTING * known[j] + (1.0 - FORGETTING) * seed[j] + value * row[j]
        residual = (seconds - predicted) / scale
        gain = _solve(self._information, row)
        self._weights = [
            max(0.0, weight + change * residual / unit)
            for weight, change, unit in zip(self._weights, gain, self._units, strict=True)
        ]


def _features(shape: StepShape) -> tuple[float, ...]:
    tokens = shape.n_decode + shape.n_prefill
    return (1.0, tokens, shape.prefill_pairs, shape.decode_context, shape.lora_bytes)


def _seed_shapes(cost: ModelCost) -> list[StepShape]:
    """Steps over the range that engines run: decoding, prompts, both at once, with and without adapters."""
    shapes = []
    for n_decode in (0, 1, 4, 16, 64):
        for context in (128, 1024, 4096):
            for n_prefill in (0, 64, 512, 2048):
                shape = StepShape()
                for _ in range(n_decode):
                    shape.add_decode(context)
                if n_prefill:
                    shape.add_prefill(n_prefill, context, samples=True)
                if not n_decode + n_prefill:
                    continue
                adapters = min(n_decode, 8) * max(1, cost.weights_bytes // 100) if context == 1024 else 0
                shape.lora_bytes = shape.lora_flops = adapters
                shapes.append(shape)
    return shapes


def _solve(matrix: Matrix, right: Sequence[float]) -> list[float]:
    """Solve a symmetric positive definite system by L·D·Lᵀ."""
    lower: Matrix = []
    diagonal: list[float] = []
    solution: list[float] = []
    for i, row in enumerate(matrix):
        scaled = list(row)
        for j in range(i):
            for k in range(j):
                scaled[j] -= scaled[k] * lower[j][k]
        pivot, value = row[i], right[i]
        for j in range(i):
            factor = scaled[j] / diagonal[j]
            pivot -= factor * scaled[j]
            value -= factor * solution[j]
            scaled[j] = factor
        lower.append(scaled)
        diagonal.append(pivot)
        solution.append(value)
    solution = [value / pivot for value, pivot in zip(solution, diagonal, strict=True)]
    for i in range(len(solution) - 1, -1, -1):
        for j in range(i):
            solution[j] -= lower[i][j] * solution[i]
    return solution
