"""Everybody who is not running: new requests in their tenants' queues, and preempted ones that will be resumed.

Also who has waited too long (the barrier) and whose deadline can no longer be met. Tells the adapter residency whose
adapters are wanted, so that they are read before their turn comes.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.scheduling.request import NEVER, Request
from lorikeet_engine.scheduling.waiting.fairness import LOOKAHEAD, FairQueue


class WaitingRoom:
    """Requests by arrival, by tenant and by adapter."""

    def __init__(
        self, queue: FairQueue, residency: AdapterResidency, *, barrier_after_s: float, aging_s: float
    ) -> None:
        self._queue = queue
        self._residency = residency
        self._barrier_after_s = barrier_after_s
        self._aging_s = aging_s
        self._new: OrderedDict[str, Request] = OrderedDict()
        self._parked: dict[str, Request] = {}
        self._blocked: OrderedDict[str, Request] = OrderedDict()
        self._by_adapter: dict[AdapterKey, dict[str, Request]] = {}
        self._expiries: list[tuple[float, int, Request]] = []

    def __len__(self) -> int:
        return len(self._new) + len(self._parked)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._new or request_id in self._parked

    @property
    def n_parked(self) -> int:
        return len(self._parked)

    def get(self, request_id: str) -> Request | None:
        return self._new.get(request_id) or self._parked.get(request_id)

    def add(self, request: Request, now: float, *, expires_s: float) -> None:
        """A new request; at `expires_s` it cannot meet its deadline any more."""
        self._new[request.request_id] = request
        request.siblings.waiting[request.request_id] = request
        self._queue.push(request.account, request, request.n_expected, now)
        if expires_s < NEVER:
            heapq.heappush(self._expiries, (expires_s, request.serial, request))
        self._want(request, now)

    def park(self, request: Request, now: float) -> None:
        """A preempted request; it keeps its place by arrival."""
        self._parked[request.request_id] = request
        request.account.n_parked += 1
        self._want(request, now)

    def remove(self, request: Request) -> None:
        """It was admitted, or it is over."""
        if self._new.pop(request.request_id, None):
            self._queue.remove(request.account, request, request.n_expected)
            self._pass_on_prompt(request)
        else:
            del self._parked[request.request_id]
            request.account.n_parked -= 1
        self._blocked.pop(request.request_id, None)
        if request.adapter:
            users = self._by_adapter[request.adapter]
            del users[request.request_id]
            if not users:
                del self._by_adapter[request.adapter]
            self._residency.unwant(request.adapter)

    def _pass_on_prompt(self, request: Request) -> None:
        """If it went away before it began, the next of its siblings has to compute the prompt."""
        siblings = request.siblings
        del siblings.waiting[request.request_id]
        heir = next(iter(siblings.waiting.values()), None)
        if heir and not siblings.running and heir.n_expected < request.n_expected:
            self._queue.expect(heir.account, request.n_expected - heir.n_expected)
            heir.n_expected = request.n_expected

    def expired(self, now: float) -> list[Request]:
        """New requests that cannot meet their deadline any more; they are still in the room."""
        late: list[Request] = []
        while self._expiries and self._expiries[0][0] <= now:
            request = heapq.heappop(self._expiries)[2]
            if self._can_expire(request):
                late.append(request)
        if len(self._expiries) > 2 * len(self._new) + 64:  # mostly of requests that are over
            self._expiries = [entry for entry in self._expiries if self._can_expire(entry[2])]
            heapq.heapify(self._expiries)
        return late

    def _can_expire(self, request: Request) -> bool:
        """An answer of several that has begun is not cut short because its last part begins late."""
        return self._new.get(request.request_id) is request and not request.siblings.has_begun

    def waiting_for(self, key: AdapterKey) -> list[Request]:
        return list(self._by_adapter.get(key, {}).values())

    def parked(self) -> list[Request]:
        """Preempted requests by arrival."""
        return sorted(self._parked.values(), key=lambda request: request.serial)

    def fair_order(self, is_local: Callable[[Request], bool], *, all_of_them: bool) -> Iterator[Request]:
        """New requests as fairness wants them; without `all_of_them` only the oldest few of each tenant."""
        return self._queue.candidates(is_local, lookahead=None if all_of_them else LOOKAHEAD)

    def note_blocked(self, request: Request, now: float, *, adapter: bool) -> None:
        """Its turn came, and memory or (`adapter`) its adapter kept it from running."""
        if adapter and request.adapter_wait_since_s == NEVER:
            request.adapter_wait_since_s = now
        if request.blocked_since_s == NEVER:
            request.blocked_since_s = now
            self._blocked[request.request_id] = request

    def note_own_limit(self, request: Request) -> None:
        """What keeps it is its own tenant's share: nobody makes way for it."""
        request.blocked_since_s = NEVER
        self._blocked.pop(request.request_id, None)

    def barrier(self, now: float) -> Request | None:
        """The request that has been kept waiting longest, once that is too long."""
        first = next(iter(self._blocked.values()), None)
        if first is not None and now - first.blocked_since_s >= self._barrier_after_s:
            return first
        oldest = self._oldest()
        if oldest is not None and now - oldest.arrival_s >= self._aging_s:
            return oldest
        return None

    def _oldest(self) -> Request | None:
        oldest = [*islice(self._new.values(), 1), *self._parked.values()]
        return min(oldest, key=lambda request: request.serial, default=None)

    def _want(self, request: Request, now: float) -> None:
        if request.adapter:
            self._by_adapter.setdefault(request.adapter, {})[request.request_id] = request
            self._residency.want(request.adapter, now)
