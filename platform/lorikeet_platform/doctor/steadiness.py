"""Keeps findings from flapping: one has to be there twice in a row to count, and to stay away for a while to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from lorikeet_platform.doctor.schemas import Finding

RAISED_AFTER: Final = 2  # examinations in a row in which a rule fires
CLEARED_AFTER: Final = 6  # examinations in a row in which it does not


class Steadiness:
    """The findings that count, each as it was found last."""

    def __init__(self, *, raised_after: int = RAISED_AFTER, cleared_after: int = CLEARED_AFTER) -> None:
        self._raised_after, self._cleared_after = raised_after, cleared_after
        self._fired: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._held: dict[str, Finding] = {}

    def take(self, found: Mapping[str, Finding | None]) -> list[Finding]:
        """The outcome of one examination by rule; what no rule was asked about stays as it was."""
        for rule, finding in found.items():
            if finding is None:
                self._fired[rule] = 0
                self._silent[rule] += 1
                if self._silent[rule] >= self._cleared_after:
                    self._held.pop(rule, None)
            else:
                self._silent[rule] = 0
                self._fired[rule] += 1
                if rule in self._held or self._fired[rule] >= self._raised_after:
                    self._held[rule] = finding
        return list(self._held.values())
