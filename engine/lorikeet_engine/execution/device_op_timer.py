"""Times of ops on a device that computes beside the host: an event before and after each, read when the step is over.

Device times become host times by one event a step whose end the host waits for; they are late by what that wait takes
to return, some microseconds. A profiled step ends with its last op, so nothing of the next one overlaps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from lorikeet_engine.profiling.step_timeline import StepTimeline

NS_PER_MS = 1_000_000


class DeviceEvent(Protocol):
    """A mark in the device's queue (`torch.cuda.Event` with timing); the time between two is in milliseconds."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Any, /) -> float: ...


class _TimedOp(NamedTuple):
    name: str
    layer: int | None
    begin: DeviceEvent
    end: DeviceEvent


class DeviceOpTimer:
    """Puts the ops of one device's queue on the timeline's second track."""

    def __init__(self, timeline: StepTimeline, new_event: Callable[[], DeviceEvent]) -> None:
        self._timeline = timeline
        self._new_event = new_event
        self._anchor: tuple[DeviceEvent, int] | None = None  # a mark, and when the device was there
        self._ops: list[_TimedOp] = []
        timeline.before_keeping = self._read_times

    @contextmanager
    def op(self, name: str, layer: int | None) -> Iterator[None]:
        if not self._timeline.is_recording:
            yield
            return
        if self._anchor is None:
            mark = self._new_event()
            mark.record()
            mark.synchronize()
            self._anchor = mark, self._timeline.clock()
        timed = _TimedOp(name, layer, self._new_event(), self._new_event())
        timed.begin.record()
        yield
        timed.end.record()
        self._ops.append(timed)

    def _read_times(self) -> None:
        if self._anchor is None:
            return
        mark, marked_ns = self._anchor
        if self._ops:
            self._ops[-1].end.synchronize()
        for name, layer, begin, end in self._ops:
            start_ns, end_ns = (marked_ns + round(mark.elapsed_time(event) * NS_PER_MS) for event in (begin, end))
            self._timeline.add_device_op(name, layer, start_ns, end_ns)
        self._anchor, self._ops = None, []
