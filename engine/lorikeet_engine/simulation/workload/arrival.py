"""One request on its way to the engine, with what only the simulation knows about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Protocol

from lorikeet_engine.scheduling.request import Request

# Prompts are made of these, and no end-of-sequence token is among them.
N_WORDS = 1 << 15


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that its client has sent.

    Attributes:
        at: when it was sent; the engine may be in the middle of a step then.
        n_output: how many tokens the answer takes, if nothing cuts it short.
        abort_after_s: when the client hangs up, counted from `at`; 0 = it waits.
    """

    at: float
    request: Request
    n_output: int
    abort_after_s: float = 0.0


class Traffic(Protocol):
    """Where requests come from, in the order of their times."""

    def next_at(self) -> float | None:
        """When the next request comes, as far as that is settled; None when nothing is on its way."""

    def take(self, now: float) -> Sequence[Arrival]:
        """The requests that have come by `now`; each is given once."""

    def on_ended(self, request_id: str, now: float) -> None:
        """A request has its answer, or will never get one."""


def random_tokens(source: Random, n: int, n_words: int = N_WORDS) -> tuple[int, ...]:
    """`n` tokens below `n_words`, a power of two; fast: hundreds of thousands of prompts are made in one run."""
    if n == 0:
        return ()
    drawn = source.getrandbits(16 * n) & _mask(n, n_words)
    return tuple(memoryview(drawn.to_bytes(2 * n, "little")).cast("H"))


@cache
def _mask(n: int, n_words: int) -> int:
    return int.from_bytes((n_words - 1).to_bytes(2, "little") * n, "little")
