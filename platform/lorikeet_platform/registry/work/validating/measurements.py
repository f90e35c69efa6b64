"""What a version was measured as, kept while its validation waits for something else: certifying costs minutes.

In memory, since another worker, or this one after a start, may well measure again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from lorikeet_engine.certification.measured import Measured

MOST: Final = 256


@dataclass(frozen=True, slots=True)
class Subject:
    """One version's files, which never change, the adapter that came out of them, and the format it is served in."""

    tenant_id: str
    version_id: str
    digest: str
    serving_dtype: str


@dataclass(slots=True)
class Measurements:
    """By subject; beyond the most that is kept, the oldest goes. For any number of threads."""

    _by_subject: OrderedDict[Subject, Measured] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, subject: Subject) -> Measured | None:
        with self._lock:
            return self._by_subject.get(subject)

    def keep(self, subject: Subject, measured: Measured) -> None:
        with self._lock:
            self._by_subject[subject] = measured
            while len(self._by_subject) > MOST:
                self._by_subject.popitem(last=False)

    def forget(self, tenant_id: str, version_id: str) -> None:
        """The version has its verdict."""
        with self._lock:
            for subject in [
                subject
                for subject in self._by_subject
                if (subject.tenant_id, subject.version_id) == (tenant_id, version_id)
            ]:
                del self._by_subject[subject]
