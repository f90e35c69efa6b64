"""Who is told apart by name: the busiest few, so that neither memory nor metrics grow with who exists.

A name is given as soon as one is free, and the names are given anew once an hour, to those that did most in it. Nobody
loses one to somebody who did no more. What is counted never shrinks: it is in one's own cell from the time one has a
name, in `other` before, and what was counted for a name goes to `former` when it is taken away. So the cells of a
`Split` always add up to everything, and `other` does not leap when names change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import nlargest
from typing import Any, Generic, Protocol, Self, TypeVar

TERM_S = 3600.0
MAX_CANDIDATES = 16_384  # beyond so many in one term, whoever comes later stands for the next one

OTHER, FORMER = "other", "former"


class Cell(Protocol):
    """Something that counts."""

    def merge(self, other: Self) -> None: ...


K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=Cell)


class Split(Generic[K, C]):
    """One kind of count, divided by name."""

    def __init__(self, new: Callable[[], C]) -> None:
        self._new = new
        self.named: dict[K, C] = {}
        self.n_changes = 0  # of names: as long as it stays, `of` answers as before
        self.other, self.former = new(), new()

    def of(self, key: K) -> C:
        """Where to count for `key`."""
        return self.named.get(key, self.other)

    def join(self, key: K) -> None:
        self.named[key] = self._new()
        self.n_changes += 1

    def leave(self, key: K) -> None:
        self.former.merge(self.named.pop(key))
        self.n_changes += 1

    def labelled(self, label: Callable[[K], str]) -> Iterator[tuple[str, C]]:
        """Every cell under its name, `other` and `former` among them; two keys may have one label."""
        for key, cell in self.named.items():
            yield label(key), cell
        yield OTHER, self.other
        yield FORMER, self.former


class Busiest(Generic[K]):
    """Gives `size` names; every one of `splits` has a cell for each."""

    def __init__(self, size: int, splits: Sequence[Split[K, Any]]) -> None:
        self._size = size
        self._splits = splits
        self._done: Counter[K] = Counter()  # in this term
        self._ends_s = float("-inf")
        self.names: dict[K, None] = {}

    def see(self, key: K, amount: int = 0) -> None:
        """`key` did so much more."""
        if key in self._done or len(self._done) < MAX_CANDIDATES:
            self._done[key] += amount
        if key not in self.names and len(self.names) < self._size:
            self._join(key)

    def tick(self, now: float) -> None:
        """Give the names anew when the term is over."""
        if now >= self._ends_s:
            if self._ends_s > float("-inf"):
                self._elect()
            self._ends_s = now + TERM_S

    def _elect(self) -> None:
        done, names = self._done, self.names
        candidates = names | dict.fromkeys(done)  # of equal ones the first stay: those with names
        elected = dict.fromkeys(nlargest(self._size, candidates, key=done.__getitem__))
        for key in [key for key in names if key not in elected]:
            del names[key]
            for split in self._splits:
                split.leave(key)
        for key in elected:
            if key not in names:
                self._join(key)
        done.clear()

    def _join(self, key: K) -> None:
        self.names[key] = None
        for split in self._splits:
            split.join(key)
