"""How long a push goes on when the server or the network does not: back-off with jitter, within a budget.

The budget counts from the last progress, so a slow upload may take its time and a dead one ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from lorikeet_platform.cli.api import Refusal
from lorikeet_platform.cli.console import CommandFailed, ExitCode

BUDGET_S: Final = 600.0
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0


class Patience:
    """Waits before the next try; raises CommandFailed when the budget is spent."""

    def __init__(
        self,
        note: Callable[[str], None],
        *,
        budget_s: float = BUDGET_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._note, self._budget_s, self._clock, self._sleep = note, budget_s, clock, sleep
        self._progress_at = clock()
        self._n_failures = 0

    def made_progress(self) -> None:
        self._progress_at = self._clock()
        self._n_failures = 0

    def wait_after(self, failure: str, refusal: Refusal | None = None) -> None:
        """Sleep as long as the server asked, or a random part of a growing interval."""
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._n_failures)
        self._n_failures += 1
        wait_s = random.uniform(0, longest)
        if refusal is not None and refusal.retry_after_s is not None:
            wait_s = refusal.retry_after_s
        if self._clock() + wait_s - self._progress_at > self._budget_s:
            raise CommandFailed(ExitCode.NETWORK, f"no progress for {self._budget_s:.0f} s, last: {failure}")
        self._note(f"{failure}; trying again in {wait_s:.1f} s")
        self._sleep(wait_s)
