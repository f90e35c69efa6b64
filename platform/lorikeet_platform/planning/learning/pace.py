"""How long a step takes, and whether steps that are asked about lie within what has been measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lorikeet_engine.cost import StepShape
from lorikeet_platform.errors import PlatformError

StepSeconds = Callable[[StepShape], float]

# What a step is described by where measured steps are compared with others, and the field of a question it comes from.
FIELD_OF = {
    "adapter_bytes": "adapters",
    "batch": "concurrency",
    "context": "prompt_tokens",
    "batch_context": "concurrency",
    "prefill_tokens": "prompt_tokens",
    "prefill_context": "prompt_tokens",
    "mixed_batch": "concurrency",
    "mixed_prefill": "prompt_tokens",
}
WORDS = {
    "batch": "requests that decode in one step",
    "batch_context": "tokens of context of all decoding requests together",
    "context": "tokens of context a decoding request, on average of a step",
    "prefill_tokens": "prompt tokens in one step",
    "prefill_context": "tokens that a prompt token looks back at, on average of a step",
    "adapter_bytes": "bytes of adapters in one step",
    "mixed_batch": "requests that decode beside a prompt",
    "mixed_prefill": "prompt tokens beside requests that decode",
}
# The share of a prediction's time that may lie in steps just outside: a workload's first and last ones.
STRAY_SHARE = 0.01

Ranges = Mapping[str, tuple[float, float]]


def extent_of(shape: StepShape) -> dict[str, float]:
    """Where a step lies, by the names in `FIELD_OF`; what it has nothing of says nothing, adapters excepted."""
    extent: dict[str, float] = {"adapter_bytes": shape.lora_bytes}
    if shape.n_decode:
        extent["batch"], extent["batch_context"] = shape.n_decode, shape.decode_context
        extent["context"] = shape.decode_context / shape.n_decode
    if shape.n_prefill:
        extent["prefill_tokens"] = shape.n_prefill
        extent["prefill_context"] = shape.prefill_pairs / shape.n_prefill
    if shape.n_decode and shape.n_prefill:
        extent["mixed_batch"], extent["mixed_prefill"] = shape.n_decode, shape.n_prefill
    return extent


@dataclass(slots=True)
class Pace:
    """Times steps and keeps watch over their ranges. One for each prediction.

    Attributes:
        ranges: what was measured; None = nothing bounds the answer.
        seconds: of all steps that were asked about.
    """

    step_seconds: StepSeconds
    ranges: Ranges | None = None
    seconds: float = 0.0
    _stray_s: dict[str, float] = field(default_factory=dict)
    _furthest: dict[str, float] = field(default_factory=dict)

    def __call__(self, shape: StepShape) -> float:
        seconds = self.step_seconds(shape)
        self.seconds += seconds
        if self.ranges is not None:
            self._compare(self.ranges, shape, seconds)
        return seconds

    def holds(self, shape: StepShape) -> bool:
        """Whether such a step was measured; it is not counted."""
        ranges = self.ranges
        return ranges is None or all(_stray(ranges, name, value) == 0 for name, value in extent_of(shape).items())

    def forget(self) -> None:
        """What was asked about so far was not a part of any prediction."""
        self.seconds = 0.0
        self._stray_s.clear()
        self._furthest.clear()

    def check(self) -> None:
        """Raises PlatformError(invalid_value) that names the field and the range, where too much lay outside."""
        for name in FIELD_OF:  # the plainest first, where several tell of the same
            if self.ranges is not None and self._stray_s.get(name, 0.0) > STRAY_SHARE * self.seconds:
                low, high = self.ranges.get(name, (0.0, 0.0))
                raise PlatformError(
                    "invalid_value",
                    f"{name}: this workload has steps of {self._furthest[name]:,.0f} {WORDS[name]}; the engine has "
                    f"only been seen at {low:,.0f} to {high:,.0f}, often enough and as its other steps say. Let it "
                    f"serve such a load first, or ask without live.",
                    FIELD_OF[name],
                )

    def _compare(self, ranges: Ranges, shape: StepShape, seconds: float) -> None:
        for name, value in extent_of(shape).items():
            if distance := _stray(ranges, name, value):
                self._stray_s[name] = self._stray_s.get(name, 0.0) + seconds
                known = self._furthest.get(name)
                if known is None or distance > _stray(ranges, name, known):
                    self._furthest[name] = value


def _stray(ranges: Ranges, name: str, value: float) -> float:
    """How far outside of what was measured; what was never measured has no range at all."""
    low, high = ranges.get(name, (0.0, 0.0))
    return max(0.0, low - value, value - high)
