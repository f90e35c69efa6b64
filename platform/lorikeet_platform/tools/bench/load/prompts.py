"""Prompts of so many tokens that nobody has sent before: token ids, or text for servers that take no ids.

A text's length in tokens is what the server's tokenizer makes of it: close to the number of words, and counted by the
server alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from lorikeet_engine.simulation.workload.arrival import random_tokens

PromptKind = Literal["ids", "words"]
FIRST_ID = 3  # what lies below marks the beginning, the end, or nothing at all, in most vocabularies

# Common words; most tokenizers of English have each of them, with the space before it, as one token.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand"
    " part place case week company system program question work government number night point home water room mother"
    " area money story fact month lot right study book eye job word business issue side kind head house service friend"
    " father power hour game line end member law car city community name president team minute idea body information"
    " back parent face others level office door health person art war history party result change morning reason"
    " research girl guy moment air teacher force education foot boy age policy music market sense voice table death"
    " paper value form land light music action model food rest"
)
WORDS = tuple(dict.fromkeys(_TEXT.split()))


class Prompts:
    """Draws prompts as numbers and writes them as the server reads them."""

    def __init__(self, kind: PromptKind, vocab_size: int) -> None:
        self.kind = kind
        self._n_units = vocab_size - FIRST_ID if kind == "ids" else len(WORDS)

    def draw(self, source: Random, n: int) -> list[int]:
        n_units = self._n_units
        return [token % n_units for token in random_tokens(source, n)]

    def write(self, units: Sequence[int]) -> str | list[int]:
        if self.kind == "words":
            return " ".join([WORDS[unit] for unit in units])
        return [FIRST_ID + unit for unit in units]
