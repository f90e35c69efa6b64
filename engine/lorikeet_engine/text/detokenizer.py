"""Text of a growing list of tokens, piece by piece, so that the pieces join to the text of the whole.

A character may be made of several tokens, and some tokenizers write a token differently at the start of a text. So a
piece is the difference of two decodes that begin at a token already shown, and it is held back while it ends in an
unfinished character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"


class Detokenizer:
    """Incremental decoding of one request's output.

    Invariant: everything returned by `push` and `finish` joins to `decode(all tokens)`.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._context = 0  # first token of the decode window
        self._shown = 0  # tokens whose text was returned

    def push(self, token: int) -> str:
        """Add one token and return the text that became certain."""
        self._tokens.append(token)
        before, now = self._window()
        if len(now) <= len(before) or now.endswith(REPLACEMENT):
            return ""
        self._context, self._shown = self._shown, len(self._tokens)
        return now[len(before) :]

    def finish(self) -> str:
        """Return what was held back: bytes that never became a character."""
        before, now = self._window()
        self._context = self._shown = len(self._tokens)
        return now[len(before) :]

    def _window(self) -> tuple[str, str]:
        shown = self._decode(self._tokens[self._context : self._shown])
        return shown, self._decode(self._tokens[self._context :])
