"""How evenly tenants that compete are served: Jain's index over their weighted service in the last minute.

Only tenants whose requests waited all the time compete: who asks for little is not treated badly because it got little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from lorikeet_engine.cost import jain_index
from lorikeet_engine.scheduling.counters import TenantLoad

WINDOW_S = 60.0
EVERY_S = 2.0


class ServiceWindow:
    """Looks at what each waiting tenant has received, every `EVERY_S` seconds at most."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[str, float]]] = deque()
        self._next_s = float("-inf")

    def look(self, now: float, tenants: Callable[[], Sequence[TenantLoad]]) -> None:
        if now < self._next_s:
            return
        self._next_s = now + EVERY_S
        self._looks.append((now, {load.tenant: load.received for load in tenants() if load.waiting}))
        self._forget(now)

    def fairness(self, now: float) -> float:
        """1 when all that competed received the same for their weight, 1/n when one of n received everything."""
        self._forget(now)
        if len(self._looks) < 2:
            return 1.0
        first, last = self._looks[0][1], self._looks[-1][1]
        competing = set(first).intersection(*(received for _, received in self._looks))
        return jain_index([max(0.0, last[tenant] - first[tenant]) for tenant in competing])

    def _forget(self, now: float) -> None:
        while self._looks and self._looks[0][0] < now - WINDOW_S:
            self._looks.popleft()
