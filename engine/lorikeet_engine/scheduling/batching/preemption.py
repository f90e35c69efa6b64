"""When KV memory runs out: who gives way, how, and when the doors open again.

Three answers to a row that needs a block and finds none: somebody's blocks go to host memory (swap), somebody's blocks
are dropped and computed again later (recompute), or the row waits, because another request is about to end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lorikeet_engine.cost import DeviceProfile, ModelCost, recompute_seconds, swap_seconds
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.ledger import MemoryState
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.request import Request

Way = Literal["swap", "recompute"]

MAX_PREEMPTIONS = 3  # then a request is spared as long as another can be found
SPARED_STEPS = 8  # likewise for requests that have only just been admitted
SEATS_FACTOR = 0.8  # the cap of running requests after a preemption …
QUIET_S = 10.0  # … which grows by one for every such time without any
BURST_S = 1.0  # preemptions closer together count as one


@dataclass(frozen=True, slots=True)
class Victim:
    """A running request with what its preemption would free and cost."""

    request: Request
    n_blocks: int
    seconds: float


class VictimChoice:
    """Scores running requests (engine-design 3.6); the highest score gives way."""

    def __init__(self, limits: SchedulerLimits, *, kv: KvManager, cost: ModelCost, profile: DeviceProfile) -> None:
        self._kv = kv
        self._cost = cost
        self._profile = profile
        self._mode = limits.preemption
        self._budget = limits.max_num_batched_tokens

    def choose(self, running: Iterable[Request], *, step_id: int) -> Request | None:
        """The victim among `running`, which is in order of arrival; None when only the oldest is left.

        The oldest is never chosen: so it ends, the next becomes the oldest, and everyone ends.
        """
        requests = list(running)
        candidates = [request for request in requests[1:] if not _is_spared(request, step_id)] or requests[1:]
        if not candidates:
            return None
        least_served = min(request.account.service for request in requests)
        victims = [self.assess(request) for request in candidates]
        most_blocks = max(victim.n_blocks for victim in victims) or 1
        most_seconds = max(victim.seconds for victim in victims) or 1.0
        newest, span = requests[-1].serial, max(1, requests[-1].serial - requests[0].serial)

        def score(victim: Victim) -> float:
            request = victim.request
            over_service = (request.account.service - least_served) / self._budget
            return (
                min(max(over_service, 0.0), 3.0)
                + 2.0 * victim.n_blocks / most_blocks
                - 2.0 * victim.seconds / most_seconds
                - request.n_output / request.max_tokens
                + 0.5 * (1.0 - (newest - request.serial) / span)
            )

        return max(victims, key=score).request

    def assess(self, request: Request) -> Victim:
        """What preempting it would free, and cost by the way that would be taken."""
        n_blocks = self._kv.n_exclusive(request.request_id)
        costs = self._costs(request, n_blocks)
        return Victim(request, n_blocks, min(costs.values()))

    def way(self, request: Request) -> Way:
        """How to preempt it: whichever costs less of what is configured and possible."""
        costs = self._costs(request, self._kv.n_exclusive(request.request_id))
        return min(costs, key=costs.__getitem__)

    def soonest_end(self, running: Iterable[Request], needy: Request) -> int | None:
        """Steps until a request ends that has all the blocks it needs for it; None when there is none.

        Such a request cannot be held up by the shortage, so waiting for it is safe. Its last token is never stored.
        """
        block = self._kv.block_size
        ends = [
            request.n_total - len(request.tokens)
            for request in running
            if request is not needy
            and request.decodes
            and (request.n_total - 2) // block == (request.n_scheduled - 1) // block
            and self._kv.n_exclusive(request.request_id)
        ]
        return min(ends, default=None)

    def _costs(self, request: Request, n_blocks: int) -> dict[Way, float]:
        """Seconds by way; swapping is no way without room in the swap pool, recomputing always is."""
        n_bytes = n_blocks * self._kv.block_bytes
        swaps = self._mode != "recompute" and 0 < n_bytes <= self._kv.swap_ledger[MemoryState.FREE]
        costs: dict[Way, float] = {}
        if not (swaps and self._mode == "swap"):
            costs["recompute"] = self._recompute_s(request, n_blocks)
        if swaps:
            costs["swap"] = swap_seconds(n_bytes, self._profile)
        return costs

    def _recompute_s(self, request: Request, n_blocks: int) -> float:
        """What it shares with others stays in the prefix cache; of its own blocks nothing is expected to."""
        n_tokens = max(1, request.n_computed)
        n_lost = min(n_tokens, n_blocks * self._kv.block_size)
        return recompute_seconds(
            self._cost, self._profile, n_tokens, survive=1.0 - n_lost / n_tokens, n_steps=-(-n_lost // self._budget)
        )


def _is_spared(request: Request, step_id: int) -> bool:
    return request.n_preemptions >= MAX_PREEMPTIONS or step_id - request.admitted_step < SPARED_STEPS


class SeatControl:
    """How many requests may run at once: fewer after preemptions, slowly more in quiet (AIMD).

    After a preemption the doors stay shut until there is room for the preempted and two blocks for everyone who runs:
    otherwise whoever came in would push the next one out.
    """

    def __init__(self, max_seats: int) -> None:
        self._max_seats = max_seats
        self.seats = max_seats
        self.is_shut = False
        self._last_burst_s = float("-inf")
        self._last_change_s = float("-inf")

    def on_preemption(self, now: float, n_running: int) -> None:
        self.is_shut = True
        if now - self._last_burst_s >= BURST_S:
            self.seats = max(1, int(min(self.seats, n_running) * SEATS_FACTOR))
        self._last_burst_s = self._last_change_s = now

    def tick(self, now: float) -> None:
        if self.seats < self._max_seats and now - self._last_change_s >= QUIET_S:
            self.seats += 1
            self._last_change_s = now

    def open_if(self, *, n_available: int, n_needed: int, n_running: int) -> bool:
        """Whether anybody may be admitted; without anyone running always."""
        if not n_running or n_available >= n_needed + 2 * n_running:
            self.is_shut = False
        return not self.is_shut
