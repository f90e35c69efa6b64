"""How much a tenant's predicted times to the first token are to be trusted.

One margin a tenant: whoever sends far more than its share waits at the mercy of all the others and is hard to predict,
and the others must not be refused for that.
"""

from __future__ import annotations

import math

from lorikeet_engine.scheduling.request import NEVER

LATE_ONES = 0.01  # the part of the admitted that may come later than the margin allows for
MARGIN_FIRST, MARGIN_LEAST, MARGIN_MOST = 0.4, 0.2, 0.8  # of the deadline
MARGIN_STEP = 0.02  # of the deadline, for one request that came too late
MARGIN_CALM_S = 600.0  # time constant with which a margin above the first one is given up while nothing comes late
AT_RISK = 0.25  # of the limit: smaller predictions that came true say nothing about the others


class Margin:
    """How much later than predicted all but one in a hundred come: so much has to be left before the deadline.

    The quantile is tracked without keeping samples: each one that came later pushes it up, the others let it sink.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._relaxed_s = 0.0
        self.seconds = MARGIN_FIRST * deadline_s

    def observe(self, *, predicted_s: float, actual_s: float) -> None:
        deadline = self._deadline_s
        if deadline == NEVER:
            return
        is_late = actual_s - predicted_s > self.seconds
        if predicted_s < AT_RISK * (deadline - self.seconds) and not is_late:
            return
        self.seconds += MARGIN_STEP * deadline * ((1.0 - LATE_ONES) if is_late else -LATE_ONES)
        self.seconds = min(max(self.seconds, MARGIN_LEAST * deadline), MARGIN_MOST * deadline)

    def relax(self, now: float) -> None:
        """Forget trouble as time goes by: a wide margin lets few requests in that could prove it too wide."""
        first, passed = MARGIN_FIRST * self._deadline_s, now - self._relaxed_s
        if self.seconds > first:
            self.seconds = first + (self.seconds - first) * math.exp(-passed / MARGIN_CALM_S)
        self._relaxed_s = now
