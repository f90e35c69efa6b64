"""Labels for more names than metrics may have: the busiest keep theirs, all others are one.

Whoever has a place keeps it until the next election, so that series do not come and go; the series of one that loses
its place ends, and what it does from then on counts with the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

OTHER: Final = "other"
PLACES: Final = 50
TERM_S: Final = 3600.0
FIRST_TERM_S: Final = 60.0  # whoever comes first after a start need not be the busiest
KNOWN: Final = 4096  # names whose business is remembered between elections


class Busiest:
    """Elects by amount of business in a term, the one before counting half.

    Args:
        on_lost: hears of each label that is not given out any more.
    """

    def __init__(
        self,
        *,
        on_lost: Callable[[str], None],
        places: int = PLACES,
        term_s: float = TERM_S,
        first_term_s: float = FIRST_TERM_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_lost, self._places, self._term_s, self._clock = on_lost, places, term_s, clock
        self._business: Counter[str] = Counter()
        self._elected: set[str] = set()
        self._shown: set[str] = set()  # those of them that were given out as a label
        self._ends_at = clock() + min(first_term_s, term_s)

    def label(self, name: str, amount: float) -> str:
        """The name itself or `OTHER`, for business of that amount."""
        if self._clock() >= self._ends_at:
            self._elect()
        self._business[name] += amount  # type: ignore[assignment]
        if len(self._business) > KNOWN:
            self._business = Counter(dict(self._business.most_common(KNOWN // 2)))
        if name not in self._elected and len(self._elected) < self._places and amount > 0:
            self._elected.add(name)
        if name not in self._elected:
            return OTHER
        self._shown.add(name)
        return name

    def _elect(self) -> None:
        self._ends_at = self._clock() + self._term_s
        elected = {name for name, _ in self._business.most_common(self._places)}
        for name in self._shown - elected:
            self._on_lost(name)
        self._shown &= elected
        self._elected = elected
        self._business = Counter({name: amount // 2 for name, amount in self._business.items() if amount >= 2})
