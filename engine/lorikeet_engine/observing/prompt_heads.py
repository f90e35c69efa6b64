"""The beginnings of the newest prompts, to explain why a prefix cache finds nothing.

Kept in memory only, bounded, never written anywhere. What leaves is how long a head prompts have in common, and the two
tokens after it; computed when somebody asks.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from heapq import nlargest
from itertools import pairwise
from statistics import fmean
from sys import byteorder
from typing import NamedTuple

KEPT_OWNERS = 64
KEPT_PROMPTS = 64  # of each owner
HEAD_TOKENS = 512
TOKEN_BYTES = 4

Whose = tuple[str, str]  # tenant, adapter digest or ""


class Prompt(NamedTuple):
    """The first tokens as big-endian words, so that bytes sort as tokens do, and how many it had in all."""

    head: bytes
    n_tokens: int


class Alike(NamedTuple):
    """How alike an owner's newest prompts are; `common_tokens` and `tokens` as in `stats.PromptHeads`."""

    n_prompts: int
    mean_tokens: float
    common_tokens: int
    tokens: tuple[int, int] | None


class PromptHeads:
    """The newest prompts of those owners that sent one last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Whose, deque[Prompt]] = OrderedDict()

    def add(self, whose: Whose, prompt: Sequence[int]) -> None:
        kept = self._kept.get(whose)
        if kept is None:
            kept = self._kept[whose] = deque(maxlen=KEPT_PROMPTS)
            if len(self._kept) > KEPT_OWNERS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(whose)
        words = array("I", prompt[:HEAD_TOKENS])
        if byteorder == "little":
            words.byteswap()
        kept.append(Prompt(words.tobytes(), len(prompt)))

    def alike(self, n: int, rank: Callable[[Whose], int]) -> list[tuple[Whose, Alike]]:
        """Of the `n` owners that `rank` puts first."""
        return [(whose, _compare(self._kept[whose])) for whose in nlargest(n, self._kept, key=rank)]


def _compare(prompts: Sequence[Prompt]) -> Alike:
    """Of sorted heads, the one that has most in common with one is beside it."""
    heads = sorted(prompt.head for prompt in prompts)
    pairs = [(_common(a, b), a, b) for a, b in pairwise(heads)]
    nearest = [max(beside) for beside in zip([*pairs[:1], *pairs], [*pairs, *pairs[-1:]], strict=True)] if pairs else []
    mean = fmean(prompt.n_tokens for prompt in prompts)
    if not nearest:
        return Alike(len(heads), mean, 0, None)
    common, a, b = sorted(nearest)[(len(nearest) - 1) // 2]
    both_go_on = min(len(a), len(b)) > common * TOKEN_BYTES
    return Alike(len(heads), mean, common, (_token(a, common), _token(b, common)) if both_go_on else None)


def _common(a: bytes, b: bytes) -> int:
    """How many tokens they begin with alike."""
    n = min(len(a), len(b))
    difference = int.from_bytes(a[:n]) ^ int.from_bytes(b[:n])
    return (n - (difference.bit_length() + 7) // 8) // TOKEN_BYTES


def _token(head: bytes, index: int) -> int:
    return int.from_bytes(head[index * TOKEN_BYTES : (index + 1) * TOKEN_BYTES])
