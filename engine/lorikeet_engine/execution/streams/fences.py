"""What is still under way on which places of memory, so that nothing reads or overwrites them too early.

Places are numbered: grains of the arena, KV blocks, host slots. A fence belongs to work of one lane; who hands over
work of another lane on the same places passes it first. Fences that were passed are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lorikeet_engine.execution.streams.lanes import Lane, Lanes, Mark


@dataclass(frozen=True, slots=True)
class _Span:
    first: int
    end: int
    mark: Mark


class SpanFences:
    """Fences around ranges of places; there are few at a time."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._spans: list[_Span] = []

    def put(self, first: int, n: int, mark: Mark) -> None:
        self._spans.append(_Span(first, first + n, mark))

    def pass_on(self, lane: Lane, first: int, n: int) -> None:
        """Let the lane wait for all that is under way inside the range."""
        if not self._spans:
            return
        met = [span for span in self._spans if span.first < first + n and first < span.end]
        for span in met:
            self._lanes.wait(lane, span.mark)
        self._spans = [span for span in self._spans if not span.mark.is_passed()]

    def __len__(self) -> int:
        return len(self._spans)


class PlaceFences:
    """Fences on single places."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._marks: dict[int, Mark] = {}  # of the latest work on each place; a lane's later mark holds the earlier

    def put(self, places: Iterable[int], mark: Mark) -> None:
        self._marks.update(dict.fromkeys(places, mark))

    def pass_on(self, lane: Lane, places: Iterable[int]) -> None:
        """Let the lane wait for all that is under way on these places."""
        if not self._marks:
            return
        met = {id(mark): mark for place in places if (mark := self._marks.get(place)) is not None}
        for mark in met.values():
            self._lanes.wait(lane, mark)
        self._marks = {place: mark for place, mark in self._marks.items() if not mark.is_passed()}

    def __len__(self) -> int:
        return len(self._marks)
