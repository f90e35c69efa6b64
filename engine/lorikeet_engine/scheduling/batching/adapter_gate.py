"""Which adapters may be in the batch: the cap of adapters a step, room in the arena, and making way for a barrier.

Every running request counts for the cap, whether it decodes or is half way through its prompt: limits are counted
when a request is admitted, so that the runner never meets too many. Knows nothing of KV memory or of fairness.
"""

from __future__ import annotations

from enum import StrEnum

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.memory.adapters.residency import AdapterResidency, Placement, Residency
from lorikeet_engine.scheduling.limits import share_of
from lorikeet_engine.scheduling.request import Request


class AdapterWait(StrEnum):
    """Why a request's adapter cannot join the batch now."""

    LOADING = "loading"  # not in host memory yet
    CAP = "cap"  # the batch holds as many adapters as a step may
    ROOM = "room"  # adapters in use fill the arena
    SHARE = "share"  # the tenant's adapters in use fill its share of the arena
    DRAINING = "draining"  # it makes way for a request that waited too long


class AdapterGate:
    """Pins the adapters of running requests."""

    def __init__(self, residency: AdapterResidency, *, max_adapters: int, tenant_arena_share: float) -> None:
        self._residency = residency
        self._max_adapters = max_adapters
        self._share_bytes = share_of(residency.ledger.capacity, tenant_arena_share)
        self._running: dict[AdapterKey, dict[str, Request]] = {}
        self._is_making_way = False

    @property
    def n_running(self) -> int:
        return len(self._running)

    def is_running(self, key: AdapterKey | None) -> bool:
        """Whether a request with this adapter costs no further adapter read."""
        return key is None or key in self._running

    def admit(self, request: Request, now: float) -> Placement | AdapterWait | None:
        """Pin the request's adapter; the answer is where to place it, None when it has its place, or what is missing.

        Nothing changes when something is missing.
        """
        key = request.adapter
        if key is None:
            return None
        state = self._residency.state(key)
        if state is None or state is Residency.LOADING:
            return AdapterWait.LOADING
        if state is Residency.DRAINING:
            return AdapterWait.DRAINING
        if key not in self._running:
            if len(self._running) >= self._max_adapters:
                return AdapterWait.CAP
            if self._exceeds_share(key):
                return AdapterWait.SHARE
        placement = None
        if state is Residency.HOST:
            placement = self._residency.place(key, now)
            if placement is None:
                return AdapterWait.ROOM
        self._residency.pin(key, now, is_first=not request.was_admitted)
        self._running.setdefault(key, {})[request.request_id] = request
        return placement

    def running_on(self, key: AdapterKey) -> list[Request]:
        return list(self._running.get(key, {}).values())

    def leave(self, request: Request) -> None:
        """A running request ended or was preempted."""
        key = request.adapter
        if key is None:
            return
        users = self._running[key]
        del users[request.request_id]
        if not users:
            del self._running[key]
        self._residency.unpin(key)

    def make_way(self, key: AdapterKey, now: float) -> None:
        """Let adapters drain until the barrier's has its place: those whose running requests end soonest."""
        self._is_making_way = True
        state = self._residency.state(key)
        if state in (None, Residency.LOADING, Residency.HOST):
            self._residency.promote(key, now)
        if state is Residency.HOST:
            self._residency.hold(key, self._residency.n_grains_of(key))
        if state not in (None, Residency.LOADING):
            self._drain(key, self._residency.n_bytes_missing(key))

    def clear_way(self) -> None:
        """The barrier runs, or is gone."""
        if self._is_making_way:
            self._is_making_way = False
            self._residency.undrain_all()
            self._residency.release_hold()

    def _drain(self, barrier: AdapterKey, n_bytes: int) -> None:
        """Drain adapters until one place in the step and `n_bytes` of the arena come free."""
        draining = [key for key in self._running if self._residency.state(key) is Residency.DRAINING]
        n_bytes -= sum(self._residency.n_bytes_of(key) for key in draining)
        needs_place = len(self._running) >= self._max_adapters and not draining
        others = [key for key in self._running if key not in draining and key != barrier]
        for key in sorted(others, key=self._ends_in):
            if not needs_place and n_bytes <= 0:
                return
            self._residency.drain(key)
            needs_place = False
            n_bytes -= self._residency.n_bytes_of(key)

    def _ends_in(self, key: AdapterKey) -> int:
        """Tokens until the last of the adapter's running requests has ended, at most."""
        return max(request.n_total - request.n_computed for request in self._running[key].values())

    def _exceeds_share(self, key: AdapterKey) -> bool:
        """An adapter that is larger than the share runs alone."""
        in_use = self._residency.in_use_of(key.tenant)
        n_bytes = self._residency.n_bytes_of(key)
        return in_use > 0 and in_use + n_bytes > self._share_bytes
