"""How many requests each subject, a tenant or a key's lineage, has in the engine, whichever client sent them.

A request counts once however many answers it has: from its submit to the end of its last answer, and as waiting until
its first answer begins. What may be is said anew with every request; kept is only what is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lorikeet_engine.scheduling.request import Siblings


class Cap(Protocol):
    """So many requests of `subject` may be in the engine, and so many of them may wait; 0 = none (`protocol.Cap`)."""

    @property
    def subject(self) -> str: ...
    @property
    def concurrent(self) -> int: ...
    @property
    def waiting(self) -> int: ...


@dataclass(slots=True)
class Presence:
    """The requests of one subject, by arrival."""

    waiting: dict[Siblings, None] = field(default_factory=dict)
    begun: dict[Siblings, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.begun)


@dataclass(frozen=True, slots=True)
class Excess:
    """What keeps a request out; `reason` is one of `errors.REFUSAL_REASONS`, `allowed` what the cap says."""

    reason: str
    allowed: int
    presence: Presence

    @property
    def detail(self) -> str:
        present = self.presence
        if self.reason == "tenant_waiting":
            return f"{len(present.waiting)} requests wait, and {self.allowed} may"
        return f"{len(present)} requests run or wait, and {self.allowed} may at a time"


class Caps:
    """Who is here; a subject of which nothing is here is forgotten."""

    def __init__(self) -> None:
        self._present: dict[str, Presence] = {}

    def __len__(self) -> int:
        return len(self._present)

    def present(self, subject: str) -> Presence:
        return self._present.get(subject) or Presence()

    def excess(self, caps: Sequence[Cap]) -> Excess | None:
        """Why one more request under these caps may not come in; None = it may."""
        for cap in caps:
            present = self.present(cap.subject)
            if len(present) >= cap.concurrent:
                return Excess("tenant_concurrency", cap.concurrent, present)
            if len(present.waiting) >= cap.waiting:
                return Excess("tenant_waiting", cap.waiting, present)
        return None

    def enter(self, siblings: Siblings, caps: Sequence[Cap], n_requests: int) -> None:
        """The answers of one submit were taken, `n_requests` of them."""
        siblings.subjects, siblings.n_left = tuple(dict.fromkeys(cap.subject for cap in caps)), n_requests
        for subject in siblings.subjects:
            self._present.setdefault(subject, Presence()).waiting[siblings] = None

    def begin(self, siblings: Siblings) -> None:
        """The first of its answers was admitted."""
        for subject in siblings.subjects:
            present = self._present[subject]
            del present.waiting[siblings]
            present.begun[siblings] = None

    def leave(self, siblings: Siblings) -> None:
        """One of its answers is over."""
        siblings.n_left -= 1
        if siblings.n_left:
            return
        for subject in siblings.subjects:
            present = self._present[subject]
            present.waiting.pop(siblings, None)
            present.begun.pop(siblings, None)
            if not len(present):
                del self._present[subject]


def soonest_end(present: Presence) -> int | None:
    """Steps until one of the requests that have begun ends at the latest; None while none computes."""
    ends = [
        max(
            request.n_total - len(request.tokens)
            for request in (*siblings.running.values(), *siblings.waiting.values())
        )
        for siblings in present.begun
        if siblings.running
    ]
    return min(ends, default=None)


def soonest_start(present: Presence) -> float | None:
    """When the first of those that wait was predicted to begin; None if none waits."""
    starts = [
        request.arrival_s + request.predicted_ttft_s
        for siblings in present.waiting
        for request in siblings.waiting.values()
    ]
    return min(starts, default=None)
