"""Keeps findings from flapping: one has to be there twice in a row to count, and to stay away for a while to end.

What happens seldom and all at once stays longer, so that somebody who looks later, and a rule that alerts on what
lasts, learn of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from lorikeet_platform.doctor.schemas import Finding

RAISED_AFTER: Final = 2  # examinations in a row in which a rule fires
CLEARED_AFTER: Final = 6  # examinations in a row in which it does not
LASTING: Final[Mapping[str, int]] = {"failed_steps": 180}  # likewise, where events are rare: a quarter of an hour


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
                if self._silent[rule] >= LASTING.get(rule, self._cleared_after):
                    self._held.pop(rule, None)
            else:
                self._silent[rule] = 0
                self._fired[rule] += 1
                if rule in self._held or self._fired[rule] >= self._raised_after:
                    self._held[rule] = finding
        return list(self._held.values())

    def forget(self, rules: Iterable[str]) -> None:
        """Begin anew with these: what they spoke of is gone."""
        for rule in rules:
            self._fired[rule] = self._silent[rule] = 0
            self._held.pop(rule, None)
