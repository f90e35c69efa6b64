"""The trace-event format that Perfetto and Chrome read: spans of time on named tracks, as JSON.

Format: "Trace Event Format", Google, sections "Complete Events" (`ph` X, times in microseconds) and "Metadata Events"
(`ph` M). Knows nothing about engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

PROCESS = 1
NS_PER_US = 1000


class Span(NamedTuple):
    """Something that took time. Spans of one track lie apart or one inside the other.

    Attributes:
        track: index into the tracks' names.
        category: what Perfetto filters by.
        args: shown when the span is selected.
    """

    name: str
    start_ns: int
    end_ns: int
    track: int
    category: str
    args: Mapping[str, int | str] = {}


def chrome_trace(
    spans: Iterable[Span], *, process: str, tracks: Sequence[str], about: Mapping[str, str]
) -> dict[str, Any]:
    """The whole file as plain JSON values; time 0 is the first span's start."""
    ordered = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))  # who holds others stands before them
    origin_ns = ordered[0].start_ns if ordered else 0
    return {
        "displayTimeUnit": "ms",
        "otherData": dict(about),
        "traceEvents": [*_names(process, tracks), *(_complete(span, origin_ns) for span in ordered)],
    }


def _names(process: str, tracks: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", 0, {"name": process})
    for track, name in enumerate(tracks):
        yield _metadata("thread_name", track + 1, {"name": name})
        yield _metadata("thread_sort_index", track + 1, {"sort_index": track})


def _metadata(name: str, thread: int, args: Mapping[str, int | str]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": PROCESS, "tid": thread, "args": dict(args)}


def _complete(span: Span, origin_ns: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.category,
        "pid": PROCESS,
        "tid": span.track + 1,
        "ts": (span.start_ns - origin_ns) / NS_PER_US,
        "dur": (span.end_ns - span.start_ns) / NS_PER_US,
        "args": dict(span.args),
    }
