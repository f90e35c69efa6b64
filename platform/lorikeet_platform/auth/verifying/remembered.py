"""What was found out a moment ago: bounded, the least recently used goes first, and as old as the asker accepts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """Values by digest with the time that each was true. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[bytes, tuple[int, Value]] = OrderedDict()
        self._n_forgotten = 0
        self._lock = threading.Lock()

    @property
    def n_forgotten(self) -> int:
        """How often something was to be forgotten; whoever begins to find something out notes it for `put`."""
        return self._n_forgotten

    def find(self, digest: bytes, not_before: int) -> Value | None:
        """None for what is unknown or older."""
        with self._lock:
            entry = self._entries.get(digest)
            if entry is None or entry[0] < not_before:
                return None
            self._entries.move_to_end(digest)
            return entry[1]

    def put(self, digest: bytes, value: Value, at: int, n_forgotten: int) -> None:
        """Not when something was forgotten since `n_forgotten`: the value may be older than what changed it."""
        with self._lock:
            if n_forgotten != self._n_forgotten:
                return
            self._entries[digest] = (at, value)
            self._entries.move_to_end(digest)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)

    def forget(self, is_meant: Callable[[Value], bool]) -> None:
        with self._lock:
            self._n_forgotten += 1
            for digest in [digest for digest, (_at, value) in self._entries.items() if is_meant(value)]:
                del self._entries[digest]

    def __len__(self) -> int:
        return len(self._entries)
