"""How long requests waited and ran: from the queue to the last token, by kind, by tenant and by adapter.

Every answer of a request counts for itself. One that was refused, that failed, expired or was aborted leaves what it
had until then, but no time of an end it never had; one that never got a token leaves no time to its first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.latency_bounds import MEASURES
from lorikeet_engine.observing.busiest import Split
from lorikeet_engine.observing.histogram import Histogram
from lorikeet_engine.scheduling.events import Admitted, Event, TokenOutput
from lorikeet_engine.scheduling.request import NEVER, Request


class LatencyCell:
    """One histogram of each of `MEASURES`."""

    __slots__ = MEASURES

    queue: Histogram
    adapter_wait: Histogram
    prefill: Histogram
    ttft: Histogram
    itl: Histogram
    tpot: Histogram
    e2e: Histogram

    def __init__(self) -> None:
        for measure in MEASURES:
            setattr(self, measure, Histogram())

    def histograms(self) -> list[tuple[str, Histogram]]:
        return [(measure, getattr(self, measure)) for measure in MEASURES]

    def merge(self, other: LatencyCell) -> None:
        for (_, mine), (_, its) in zip(self.histograms(), other.histograms(), strict=True):
            mine.merge(its)


class Owner:
    """Whose requests count together; one object for all of them, so that it is quick to look up.

    `cells`: where they count, as long as the names are those of `n_changes`; `gaps`: the histograms of their gaps.
    """

    __slots__ = ("adapter", "cells", "gaps", "n_changes", "n_requests", "tenant")

    def __init__(self, tenant: str, adapter: AdapterKey | None) -> None:
        self.tenant = tenant
        self.adapter = adapter
        self.n_requests = 0
        self.n_changes = -1
        self.cells: tuple[LatencyCell, ...] = ()
        self.gaps: tuple[Histogram, ...] = ()


@dataclass(slots=True, eq=False)
class Life:
    """One request on its way; `NEVER` is what has not happened yet."""

    request: Request
    owner: Owner
    admitted_s: float = NEVER
    first_s: float = NEVER
    last_s: float = NEVER


class LatencyBook:
    """Follows every request from its submit to its end.

    `on_tokens` hears of every owner's tokens: the prompt's when they come, the answer's when it is over.
    """

    def __init__(
        self,
        tenants: Split[str, LatencyCell],
        adapters: Split[AdapterKey, LatencyCell],
        on_tokens: Callable[[Owner, int], None],
    ) -> None:
        self.by_kind = {"base": LatencyCell(), "adapter": LatencyCell()}
        self.tenants = tenants
        self.adapters = adapters
        self._on_tokens = on_tokens
        self._lives: dict[str, Life] = {}
        self._owners: dict[tuple[str, AdapterKey | None], Owner] = {}

    @property
    def n_open(self) -> int:
        return len(self._lives)

    def begin(self, requests: Iterable[Request]) -> None:
        for request in requests:
            whose = request.tenant, request.adapter
            owner = self._owners.get(whose)
            if owner is None:
                owner = self._owners[whose] = Owner(*whose)
            owner.n_requests += 1
            self._on_tokens(owner, request.n_prompt)
            self._lives[request.request_id] = Life(request, owner)

    def end(self, request_id: str) -> None:
        """It ended without a last token."""
        life = self._lives.pop(request_id, None)
        if life is not None:
            self._leave(life)

    def take(self, events: Sequence[Event], end_s: float) -> None:
        """What a step that ended then has made. The rows of a batch mostly share their gap: they count together."""
        lives = self._lives
        gaps: dict[tuple[Owner, float], int] = {}
        for event in events:
            life = lives.get(event.request_id)
            if life is None:
                continue
            if event.__class__ is TokenOutput:
                if life.first_s == NEVER:
                    self._begin_answer(life, end_s)
                else:
                    gap = life.owner, life.last_s
                    gaps[gap] = gaps.get(gap, 0) + 1
                life.last_s = end_s
                if event.finish_reason:
                    self._finish(life, end_s)
            elif event.__class__ is Admitted:
                self._admit(life, event)
            else:
                self.end(event.request_id)
        for (owner, last_s), n in gaps.items():
            self._cells(owner)
            Histogram.add_to_all(owner.gaps, end_s - last_s, n)

    def _admit(self, life: Life, event: Admitted) -> None:
        life.admitted_s = life.request.arrival_s + event.queue_s
        for cell in self._cells(life.owner):
            cell.queue.add(event.queue_s)
            if life.owner.adapter is not None:
                cell.adapter_wait.add(event.adapter_wait_s)

    def _begin_answer(self, life: Life, now: float) -> None:
        life.first_s = now
        for cell in self._cells(life.owner):
            cell.prefill.add(now - life.admitted_s)
            cell.ttft.add(now - life.request.arrival_s)

    def _finish(self, life: Life, now: float) -> None:
        n_gaps = life.request.n_output - 1
        for cell in self._cells(life.owner):
            cell.e2e.add(now - life.request.arrival_s)
            if n_gaps:
                cell.tpot.add((now - life.first_s) / n_gaps)
        self.end(life.request.request_id)

    def _leave(self, life: Life) -> None:
        owner = life.owner
        self._on_tokens(owner, life.request.n_output)
        owner.n_requests -= 1
        if not owner.n_requests:
            del self._owners[owner.tenant, owner.adapter]

    def _cells(self, owner: Owner) -> tuple[LatencyCell, ...]:
        n_changes = self.tenants.n_changes + self.adapters.n_changes
        if owner.n_changes != n_changes:
            kind, tenant = self.by_kind["base" if owner.adapter is None else "adapter"], self.tenants.of(owner.tenant)
            owner.cells = (kind, tenant, *([self.adapters.of(owner.adapter)] if owner.adapter else []))
            owner.gaps = tuple([cell.itl for cell in owner.cells])
            owner.n_changes = n_changes
        return owner.cells
