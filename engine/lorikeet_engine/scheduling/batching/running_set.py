"""The requests that run, by arrival, and which of them belong to one submit."""

from __future__ import annotations

from collections.abc import Iterator

from lorikeet_engine.scheduling.request import Request


class RunningSet:
    """Iterates oldest first, whatever order requests were admitted in."""

    def __init__(self) -> None:
        self.by_id: dict[str, Request] = {}
        self._newest = -1

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.by_id.values())

    def add(self, request: Request) -> None:
        self.by_id[request.request_id] = request
        if request.serial < self._newest:  # it was preempted before, or passed over
            self.by_id = {r.request_id: r for r in sorted(self.by_id.values(), key=lambda r: r.serial)}
        self._newest = max(self._newest, request.serial)
        request.siblings.running[request.request_id] = request

    def remove(self, request: Request) -> None:
        del self.by_id[request.request_id]
        if not self.by_id:
            self._newest = -1
        del request.siblings.running[request.request_id]

    def parent_of(self, request: Request) -> Request | None:
        """A running sibling to fork from: the furthest, so that it is past the prompt if any is."""
        running = request.siblings.running
        return max(running.values(), key=lambda sibling: sibling.n_computed) if running else None
