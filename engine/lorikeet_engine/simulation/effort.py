"""What a simulation costs whoever runs it, counted as it goes, and an end to that.

Counted rather than timed, so that the same question gets the same answer on a busy machine. Knows no engine.
"""

from __future__ import annotations

from dataclasses import dataclass

# Seconds of one CPU core, measured on the machine that the figures in docs/benchmarks.md are of.
STEP_S = 90e-6
ROW_S = 8e-6
REQUEST_S = 150e-6
PROMPT_BLOCK_S = 4e-6  # found by its hash, handed out and given back
PROMPT_TOKEN_S = 0.1e-6  # copied, and held as long as the request is
ADAPTER_S = 5e-6  # an adapter that there is, whether or not it is asked for


class TooMuchWork(Exception):
    """A simulation was given up since it had cost what it was allowed to."""


def request_seconds(*, prompt_tokens: int, block_size: int) -> float:
    """Of a request's beginning and end, without the steps that it is in."""
    return REQUEST_S + -(-prompt_tokens // block_size) * PROMPT_BLOCK_S + prompt_tokens * PROMPT_TOKEN_S


@dataclass(slots=True)
class Effort:
    """Seconds that a simulation may cost, and those that it has cost."""

    limit_s: float
    block_size: int
    spent_s: float = 0.0

    def turn(self, n_rows: int) -> None:
        """One step or one pause. Raises TooMuchWork."""
        self._spend(STEP_S + n_rows * ROW_S)

    def request(self, prompt_tokens: int) -> None:
        """One request that came. Raises TooMuchWork."""
        self._spend(request_seconds(prompt_tokens=prompt_tokens, block_size=self.block_size))

    def _spend(self, seconds: float) -> None:
        self.spent_s += seconds
        if self.spent_s > self.limit_s:
            raise TooMuchWork
