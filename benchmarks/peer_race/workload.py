"""The scenarios, and the prompts of each run: token ids that no earlier run has used.

Prompts are windows of the demo adapters' texts. Each begins with a number of its own, so that no cache, ours or a
peer's, holds anything of it but the tokens of that number.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from peer_runners.channel import Ask
from tokenizers import Tokenizer

from lorikeet_adapters import demo

TEXTS = Path(demo.__file__).parent / "texts"


@dataclass(frozen=True)
class Scenario:
    """Requests that arrive at once.

    Attributes:
        adapters: indices of the adapters, given to the streams in turn; empty = the base model.
        n_shared: tokens that all prompts begin with; `n_own` follow.
        target: what ours must reach as a multiple of the best correct peer's output tokens a second.
        bounds_ttft: the first token must not come later than that peer's, either.
    """

    name: str
    title: str
    n_streams: int
    target: float
    adapters: tuple[int, ...] = ()
    n_shared: int = 0
    n_own: int = 128
    n_output: int = 128
    bounds_ttft: bool = False


SCENARIOS = (
    Scenario("a", "1 stream, base", 1, 1.0),
    Scenario("a_lora", "1 stream, adapter r32", 1, 1.2, (2,)),
    Scenario("b", "8 streams on 8 adapters r8..64", 8, 3.0, tuple(range(8))),
    Scenario("c", "16 streams on 4 adapters r8..64", 16, 3.5, tuple(range(4))),
    Scenario("d", "8 streams, base", 8, 1.1),
    Scenario("d16", "16 streams, base", 16, 1.1),
    Scenario("e", "8 streams, 512 shared + 32", 8, 1.2, n_shared=512, n_own=32, n_output=64, bounds_ttft=True),
)


class Prompts:
    """Prompts without end, the same for the same seed."""

    def __init__(self, model_dir: Path, seed: int = 0) -> None:
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._text: list[int] = self._tokenizer.encode(_text(), add_special_tokens=False).ids
        self._random = random.Random(seed)
        self._n_made = 0

    def batch(self, scenario: Scenario, adapters: tuple[str, ...], n_output: int) -> list[Ask]:
        shared = self._fresh(scenario.n_shared)
        names = [adapters[index] for index in scenario.adapters] or [""]
        return [
            Ask([*shared, *self._fresh(scenario.n_own)], n_output, names[stream % len(names)])
            for stream in range(scenario.n_streams)
        ]

    def _fresh(self, n_tokens: int) -> list[int]:
        if not n_tokens:
            return []
        self._n_made += 1
        head = self._tokenizer.encode(f"{self._n_made}. ", add_special_tokens=False).ids
        begin = self._random.randrange(len(self._text) - n_tokens)
        return [*head, *self._text[begin : begin + n_tokens]][:n_tokens]


def _text() -> str:
    pieces = []
    for path in sorted(TEXTS.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            pair = json.loads(line)
            pieces.append(f"{pair['prompt']}\n{pair['answer']}\n")
    return "\n".join(pieces)
