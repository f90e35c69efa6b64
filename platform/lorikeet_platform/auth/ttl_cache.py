"""A bounded map whose entries age: the least recently used goes first, nothing outlives its time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from lorikeet_platform.clock import Clock

Value = TypeVar("Value")


class TtlCache(Generic[Value]):
    """Thread-safe; `find` returns None for what is absent or too old."""

    def __init__(self, *, capacity: int, ttl_us: int, clock: Clock) -> None:
        self._capacity, self._ttl_us, self._clock = capacity, ttl_us, clock
        self._entries: OrderedDict[bytes, tuple[int, Value]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: bytes) -> Value | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry[0] <= self._clock():
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def put(self, key: bytes, value: Value) -> None:
        with self._lock:
            self._entries[key] = (self._clock() + self._ttl_us, value)
            self._entries.move_to_end(key)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)

    def drop(self, key: bytes) -> None:
        with self._lock:
            self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
