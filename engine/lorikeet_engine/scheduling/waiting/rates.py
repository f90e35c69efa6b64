"""What the engine achieved lately, and what the step-time model makes of it: the numbers behind predictions."""

from __future__ import annotations

import math

from lorikeet_engine.cost import StepShape
from lorikeet_engine.step_time import StepTimeModel

RATE_MEMORY_S = 5.0  # time constant of the measured rates
LEAST = 1e-9  # a rate that is divided by is never 0


class Rates:
    """Prompt tokens a second and KV blocks released a second.

    `prompt_tokens_s` is what the engine can do, `used_tokens_s` what was asked of it. The first is measured only in
    steps that left somebody waiting for want of budget, seats or KV: those show what it can do. In others, and while it
    stands still, it is what the step-time model says.
    """

    def __init__(self, timing: StepTimeModel, *, budget: int) -> None:
        self._timing = timing
        self._budget = budget
        self._shape = StepShape()
        self._prompt_tokens_s = budget / self.step_s(budget)
        self.used_tokens_s = 0.0
        self.blocks_s = 0.0
        self.is_idle = True

    @property
    def prompt_tokens_s(self) -> float:
        return max(LEAST, self._modelled_tokens_s() if self.is_idle else self._prompt_tokens_s)

    def step_s(self, n_prefill: int) -> float:
        """Seconds of a step with that many prompt tokens beside the decodes of the last one."""
        shape = self._shape
        beside = StepShape(
            n_decode=shape.n_decode,
            decode_context=shape.decode_context,
            n_prefill=n_prefill,
            prefill_pairs=n_prefill * n_prefill // 2,
            n_sampled=shape.n_decode,
            lora_bytes=shape.lora_bytes,
        )
        return max(self._timing.predict(beside), 1e-6)

    def prefill_s(self, n_tokens: int) -> float:
        """Seconds to compute a prompt beside the decodes of the last step, once it is its turn."""
        chunk = max(1, self._budget - self._shape.n_decode)
        whole, rest = divmod(n_tokens, chunk)
        return whole * self.step_s(chunk) + (self.step_s(rest) if rest else 0.0)

    def observe(self, shape: StepShape, seconds: float, *, is_saturated: bool, n_released: int) -> None:
        """A step of `seconds` was done; `is_saturated` if it left somebody waiting for want of budget, seats or KV."""
        self._shape = shape
        if seconds <= 0.0:
            return
        share = 1.0 - math.exp(-seconds / RATE_MEMORY_S)
        used = shape.n_prefill / seconds
        rate = used if is_saturated else self._modelled_tokens_s()
        self._prompt_tokens_s += share * (rate - self._prompt_tokens_s)
        self.used_tokens_s += share * (used - self.used_tokens_s)
        self.blocks_s += share * (n_released / seconds - self.blocks_s)

    def stand_still(self) -> None:
        """There was nothing to compute."""
        self._shape = StepShape()
        self.used_tokens_s = 0.0

    def _modelled_tokens_s(self) -> float:
        chunk = max(1, self._budget - self._shape.n_decode)
        return chunk / self.step_s(chunk)
