"""The id of the request being worked on, for whatever is written on its behalf; threads of a request have it, too."""

from __future__ import annotations

from contextvars import ContextVar

_current: ContextVar[str | None] = ContextVar("lorikeet_request_id", default=None)


def current_request_id() -> str | None:
    """None outside of requests."""
    return _current.get()


def set_request_id(request_id: str) -> None:
    """For the rest of the task that handles the request, and for the tasks and threads it starts."""
    _current.set(request_id)
