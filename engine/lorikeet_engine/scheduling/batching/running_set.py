"""The requests that run, by arrival, and which of them belong to one submit."""

from __future__ import annotations

from collections.abc import Iterator

from lorikeet_engine.scheduling.request import Request


class RunningSet:
    """Iterates oldest first, whatever order requests were admitted in."""

    def __init__(self) -> None:
        self.by_id: dict[str, Request] = {}
        self._groups: dict[str, dict[str, Request]] = {}
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
        if request.group:
            self._groups.setdefault(request.group, {})[request.request_id] = request

    def remove(self, request: Request) -> None:
        del self.by_id[request.request_id]
        if not self.by_id:
            self._newest = -1
        if request.group:
            members = self._groups[request.group]
            del members[request.request_id]
            if not members:
                del self._groups[request.group]

    def parent_of(self, request: Request) -> Request | None:
        """A running request of the same submit to fork from: the furthest, so that it is past the prompt if any is."""
        members = self._groups.get(request.group) if request.group else None
        return max(members.values(), key=lambda member: member.n_computed) if members else None
