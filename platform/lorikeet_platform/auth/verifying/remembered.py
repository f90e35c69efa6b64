"""What was found out a moment ago: bounded, the least recently used goes first, and as old as the asker accepts.

A value has an owner, and marks under which it can be forgotten without a look at the others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")

OWNERS_KEPT = 10_000  # of whom something was forgotten; of others it is assumed


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    at: int
    value: Value
    marks: tuple[str, ...]


class Remembered(Generic[Value]):
    """Values by digest with the time that each was true. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[bytes, _Entry[Value]] = OrderedDict()
        self._marked: dict[str, set[bytes]] = {}
        self._n_forgotten = 0
        self._forgotten_at: OrderedDict[str, int] = OrderedDict()  # by owner, the longest ago first
        self._all_forgotten_at = 0  # of whoever is not in there
        self._lock = threading.Lock()

    @property
    def n_forgotten(self) -> int:
        """How often something was to be forgotten; whoever begins to find something out notes it for `put`."""
        return self._n_forgotten

    def find(self, digest: bytes, not_before: int) -> Value | None:
        """None for what is unknown or older."""
        with self._lock:
            entry = self._entries.get(digest)
            if entry is None or entry.at < not_before:
                return None
            self._entries.move_to_end(digest)
            return entry.value

    def put(
        self, digest: bytes, value: Value, at: int, n_forgotten: int, *, owner: str = "", marks: tuple[str, ...] = ()
    ) -> None:
        """Not when something of `owner` was forgotten since `n_forgotten`: the value may be older than the change."""
        with self._lock:
            if n_forgotten < max(self._forgotten_at.get(owner, 0), self._all_forgotten_at):
                return
            self._drop(digest)
            self._entries[digest] = _Entry(at, value, marks)
            for mark in marks:
                self._marked.setdefault(mark, set()).add(digest)
            while len(self._entries) > self._capacity:
                self._drop(next(iter(self._entries)))

    def forget(self, owner: str, mark: str) -> None:
        """What was put with `mark`, and what is being found out about `owner`."""
        with self._lock:
            self._n_forgotten += 1
            self._forgotten_at[owner] = self._n_forgotten
            self._forgotten_at.move_to_end(owner)
            if len(self._forgotten_at) > OWNERS_KEPT:
                _owner, self._all_forgotten_at = self._forgotten_at.popitem(last=False)
            for digest in tuple(self._marked.get(mark, ())):
                self._drop(digest)

    def forget_all(self) -> None:
        with self._lock:
            self._n_forgotten += 1
            self._all_forgotten_at = self._n_forgotten
            self._forgotten_at.clear()
            self._entries.clear()
            self._marked.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, digest: bytes) -> None:
        entry = self._entries.pop(digest, None)
        for mark in () if entry is None else entry.marks:
            digests = self._marked[mark]
            digests.discard(digest)
            if not digests:
                del self._marked[mark]
