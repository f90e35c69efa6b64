"""Cuts a stream of text at the first stop string, without ever showing a part of one.

Text that could still grow into a stop string is held back; it is released when it did not, or at the end.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """`text` may be shown; `stopped` says that a stop string was met right after it."""

    text: str
    stopped: bool


class StopStrings:
    """Stop-string matching over pieces of text of any size."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""

    def push(self, piece: str) -> Cut:
        """Add a piece; after a cut the rest of the stream is of no interest."""
        text = self._held + piece
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            return Cut(text[: min(found)], stopped=True)
        n_held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - n_held :]
        return Cut(text[: len(text) - n_held], stopped=False)

    def finish(self) -> str:
        """Release what was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, short of all of it."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
