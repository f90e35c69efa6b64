"""What each request has used, whose it is, and whether anybody has put it on record.

A request is in the book from its submit until it is settled, whoever settles it. Its client has the first word; one
that is gone, or stays silent, leaves its requests unclaimed, and whoever asks gets them. What was refused was never in
the book; what ended without a token is, with zeros, as long as the engine lives. What is offered is first noted where
it survives: an engine that came back with other figures would contradict what is on record by then. What a request
has cost does not survive.

Knows no socket, no file and no clock: what has to survive this process goes to a journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from lorikeet_engine.cost_vector import CostVector

NOTED_EVERY_S = 1.0
NOTED_TOKENS = 64  # of one request: no more than so many are lost with the engine
MOST_UNSETTLED = 65536  # requests in the book; whoever wants more served has to put these on record first
MOST_OFFERED = 1000  # requests in one offer
NOBODY = ""


class Note(NamedTuple):
    """A line of the journal. `state` is "running", "ended", or "settled", which takes back all the lines before it."""

    request_id: str
    tenant: str
    state: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Notebook(Protocol):
    """Where notes outlive the process (`journal.Journal`)."""

    def restored(self) -> Sequence[Note]:
        """The last note of every request that was not settled when the engine before this one ended."""
        ...

    def write(self, notes: Sequence[Note]) -> None:
        """Returns at once."""
        ...

    def unwritten(self) -> Set[str]:
        """Requests whose newest note would not survive this process."""
        ...

    def close(self) -> None:
        """Returns when everything is written, or cannot be."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class Use:
    """What one request has used; the prompt counts from the first token on.

    Attributes:
        owner: the client's session, `NOBODY` when it is from before a restart.
        state: "running" (or waiting), "ended", or "lost": its engine died, and this is the last that it noted.
        n_answers: of those that are not over.
        noted_tokens: completion tokens that the journal knows of.
        cost: of its answers that are over; None when it is from before a restart.
        n_uncharged: answers that are over and whose cost is still to come.
    """

    request_id: str
    tenant: str
    owner: str
    n_prompt: int
    n_cached: int = 0
    completion_tokens: int = 0
    state: str = "running"
    n_answers: int = 1
    ended_s: float = 0.0
    noted_tokens: int = 0
    is_settled: bool = False
    cost: CostVector | None = None
    n_uncharged: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all is known that there will be."""
        return self.state != "running" and not self.n_uncharged

    @property
    def prompt_tokens(self) -> int:
        return self.n_prompt if self.completion_tokens else 0

    @property
    def cached_tokens(self) -> int:
        return self.n_cached if self.completion_tokens else 0

    def charge(self, cost: CostVector) -> None:
        """What one of its answers that are over has cost."""
        self.n_uncharged -= 1
        if self.cost is not None:
            self.cost.add(cost)

    def note(self) -> Note:
        self.noted_tokens = self.completion_tokens
        state = "running" if self.state == "running" else "ended"
        return Note(self.request_id, self.tenant, state, self.prompt_tokens, self.cached_tokens, self.completion_tokens)


class Book:
    """The uses by request: running, ended and claimed, unclaimed; in the order in which they came to be so.

    Without a `notebook` it ends with the process. `now` is the time of the start.
    """

    def __init__(self, notebook: Notebook | None = None, *, unclaimed_after_s: float, now: float) -> None:
        self._notebook = notebook
        self._unclaimed_after_s = unclaimed_after_s
        self._running: dict[str, Use] = {}
        self._claimed: dict[str, Use] = {}
        self._unclaimed: dict[str, Use] = {}
        self._ends: dict[str, Use] = {}  # not noted yet
        self._taken_back: list[Note] = []
        self._is_urgent = False
        self._noted_s = now
        for note in notebook.restored() if notebook else ():
            self._claimed[note.request_id] = _restored(note, now)  # its client may live, and knows better

    def __len__(self) -> int:
        return len(self._running) + self.n_ended

    @property
    def n_ended(self) -> int:
        return len(self._claimed) + len(self._unclaimed)

    @property
    def is_full(self) -> bool:
        return len(self) >= MOST_UNSETTLED

    def open(self, request_id: str, *, tenant: str, owner: str, n_prompt: int, n_answers: int) -> Use:
        """A request was taken. An id that comes again is another request, and the one before it is forgotten."""
        self.settle([request_id])
        use = Use(
            request_id=request_id,
            tenant=tenant,
            owner=owner,
            n_prompt=n_prompt,
            n_answers=n_answers,
            cost=CostVector(),
        )
        self._running[request_id] = use
        return use

    def count_token(self, use: Use) -> None:
        """One more was sent to its client."""
        use.completion_tokens += 1
        if use.completion_tokens - use.noted_tokens >= NOTED_TOKENS:
            self._is_urgent = True

    def end_answer(self, use: Use, now: float) -> None:
        """One of its answers is over, and with the last one the request."""
        use.n_answers -= 1
        if use.n_answers or use.is_settled:
            return
        del self._running[use.request_id]
        use.state, use.ended_s = "ended", now
        self._claimed[use.request_id] = use
        if use.completion_tokens:
            self._ends[use.request_id] = use

    def leave(self, owner: str) -> None:
        """A client is gone, its requests were ended: they are unclaimed at once, and noted with the next turn."""
        for use in [use for use in self._claimed.values() if use.owner == owner]:
            self._unclaimed[use.request_id] = self._claimed.pop(use.request_id)
            self._is_urgent |= use.request_id in self._ends

    def settle(self, request_ids: Iterable[str]) -> None:
        """These are on record, or need not be; ids that the book does not know are passed over."""
        for request_id in request_ids:
            use = (
                self._running.pop(request_id, None)
                or self._claimed.pop(request_id, None)
                or self._unclaimed.pop(request_id, None)
            )
            if use is None:
                continue
            use.is_settled = True
            self._ends.pop(request_id, None)
            if use.noted_tokens:
                self._taken_back.append(Note(request_id, use.tenant, "settled"))

    def known(self, request_ids: Iterable[str]) -> list[Use]:
        """Those of these that are in the book."""
        shelves = (self._running, self._claimed, self._unclaimed)
        return [shelf[request_id] for request_id in request_ids for shelf in shelves if request_id in shelf]

    def unclaimed(self, now: float) -> list[Use]:
        """Ended requests that nobody claims and whose figures are whole and safe, so many as one answer holds.

        Those that have been offered have their turn again behind all the others.
        """
        while self._claimed:
            use = next(iter(self._claimed.values()))
            if now - use.ended_s < self._unclaimed_after_s:
                break
            self._unclaimed[use.request_id] = self._claimed.pop(use.request_id)
        unsafe = self._unsafe()
        safe = (use for use in self._unclaimed.values() if use.request_id not in unsafe and use.is_whole)
        offered = list(islice(safe, MOST_OFFERED))
        for use in offered:
            self._unclaimed[use.request_id] = self._unclaimed.pop(use.request_id)
        return offered

    def _unsafe(self) -> Set[str]:
        """Requests whose figures would be others after a crash; without a notebook there are none at all then."""
        return self._notebook.unwritten() | self._ends.keys() if self._notebook else frozenset()

    def turn(self, now: float) -> None:
        """Hand to the notebook what is due, at most one batch; cheap when nothing is."""
        if self._is_urgent or now - self._noted_s >= NOTED_EVERY_S:
            self._write(now)

    def close(self, now: float) -> None:
        """Note everything; what still runs is lost to whoever opens the notebook next."""
        self._write(now)
        if self._notebook:
            self._notebook.close()

    def _write(self, now: float) -> None:
        self._is_urgent, self._noted_s = False, now
        running = [use.note() for use in self._running.values() if use.completion_tokens > use.noted_tokens]
        notes = [*self._taken_back, *(use.note() for use in self._ends.values()), *running]
        self._taken_back, self._ends = [], {}
        if notes and self._notebook:
            self._notebook.write(notes)


def _restored(note: Note, now: float) -> Use:
    return Use(
        request_id=note.request_id,
        tenant=note.tenant,
        owner=NOBODY,
        n_prompt=note.prompt_tokens,
        n_cached=note.cached_tokens,
        completion_tokens=note.completion_tokens,
        state="lost" if note.state == "running" else note.state,
        n_answers=0,
        ended_s=now,
        noted_tokens=note.completion_tokens,
    )
