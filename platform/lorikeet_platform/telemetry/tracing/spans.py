"""The phases of one request, while it is answered: names and times, no content. Knows nothing of OpenTelemetry.

Whoever works for a request finds its trace by `current_trace`; without tracing that is one that forgets everything.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Phase:
    """One span under the request's; times in nanoseconds since 1970."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Caller:
    """A span of somebody else's, out of a `traceparent` header."""

    trace_id: int
    span_id: int
    is_sampled: bool


@dataclass(slots=True)
class RequestTrace:
    """What is known of one request so far.

    Attributes:
        parent: the caller's span, when the caller is trusted; `link`, when it is not.
    """

    trace_id: int = 0
    start_ns: int = 0
    parent: Caller | None = None
    link: Caller | None = None
    phases: list[Phase] = field(default_factory=list)
    attributes: dict[str, Value] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start_ns = time.time_ns()
        try:
            yield
        finally:
            self.add(name, start_ns, time.time_ns())

    def add(self, name: str, start_ns: int, end_ns: int) -> None:
        """Clocks of two processes differ by a little: no phase ends before it begins."""
        self.phases.append(Phase(name, start_ns, max(start_ns, end_ns)))

    def note(self, **attributes: Value) -> None:
        """Attributes of the request's span; `__` in a name stands for a dot."""
        self.attributes |= {name.replace("__", "."): value for name, value in attributes.items()}


class _Untraced(RequestTrace):
    """Takes everything and keeps nothing."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:  # noqa: ARG002
        yield

    def add(self, name: str, start_ns: int, end_ns: int) -> None:
        pass

    def note(self, **attributes: Value) -> None:
        pass


UNTRACED: Final[RequestTrace] = _Untraced()
_current: ContextVar[RequestTrace] = ContextVar("lorikeet_trace", default=UNTRACED)


def current_trace() -> RequestTrace:
    """The trace of the request being worked on; never None."""
    return _current.get()


def set_trace(trace: RequestTrace) -> None:
    """For the rest of the task that handles the request, and for the tasks and threads it starts."""
    _current.set(trace)
