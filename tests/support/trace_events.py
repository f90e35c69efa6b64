"""Reading a trace-event file in tests: its complete events, what lies inside what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]
KEYS = {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}


def complete_events(trace: dict[str, Any]) -> list[Event]:
    """The spans, in the file's order; every event of the file must be of a form that viewers accept."""
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event.keys() == KEYS
            assert event["ts"] >= 0
            assert event["dur"] >= 0
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def assert_nested(events: Sequence[Event]) -> None:
    """On each track spans lie apart or one inside the other: viewers draw anything else wrongly."""
    for track in {event["tid"] for event in events}:
        open_ends: list[int] = []
        for event in (event for event in events if event["tid"] == track):
            start, end = _ns(event)
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], event
            open_ends.append(end)


def inside(outer: Event, events: Sequence[Event]) -> list[Event]:
    """The spans of the same track that lie in `outer`, without it."""
    begin, end = _ns(outer)
    return [
        event
        for event in events
        if event is not outer and event["tid"] == outer["tid"] and begin <= _ns(event)[0] and _ns(event)[1] <= end
    ]


def named(events: Sequence[Event], name: str) -> Event:
    """The first of that name."""
    return next(event for event in events if event["name"] == name)


def _ns(event: Event) -> tuple[int, int]:
    start = round(1000 * event["ts"])
    return start, start + round(1000 * event["dur"])
