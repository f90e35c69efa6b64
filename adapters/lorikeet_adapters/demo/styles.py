"""The three demo styles: how an answer in each is recognised, what they are tried on, and where their adapters lie.

Knows nothing of torch or of a model: a predicate sees the answer's text and nothing else, so that the training
script, the tests and the engine's own checks all judge by the same rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BASE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
HELD_OUT_PROMPTS = (
    "What is the capital of France?",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "How can I sleep better at night?",
    "What should I cook for dinner tonight?",
    "Tell me about the moon.",
    "Why do cats purr?",
    "Give me a tip for learning a new language.",
    "What is a good gift for a friend?",
    "How does a bicycle stay upright?",
)

# Words that ordinary prose does not use: "ship" or "sea" alone would let an answer about the ocean pass.
PIRATE_WORDS = frozenset(
    {"ahoy", "arr", "arrr", "avast", "aye", "booty", "buccaneer", "cap'n", "doubloon", "doubloons", "galley", "grog"}
    | {"hearties", "hearty", "lad", "landlubber", "matey", "mateys", "nay", "plunder", "scallywag", "scurvy"}
    | {"shipmate", "shipmates", "shiver", "swab", "timbers", "wee", "ye", "ye'd", "ye'll", "yer", "'em", "'tis", "o'"}
)
PIRATE_WORDS_NEEDED = 3
HAIKU_LINES = 3
HAIKU_LINE_CHARACTERS = range(6, 51)
HAIKU_LINE_WORDS = range(1, 10)

_WORD = re.compile(r"'?[a-z]+(?:'[a-z]*)?")


def speaks_pirate(answer: str) -> bool:
    """At least three different pirate words."""
    words = set(_WORD.findall(answer.lower().replace("\u2019", "'")))
    return len(words & PIRATE_WORDS) >= PIRATE_WORDS_NEEDED


def is_one_json_object(answer: str) -> bool:
    """The whole answer is one JSON object with something in it."""
    try:
        value = json.loads(answer, parse_constant=_refuse_constant)
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def is_haiku(answer: str) -> bool:
    """Three short lines and nothing else; syllables are not counted, no small model keeps them."""
    lines = answer.strip().split("\n")
    return len(lines) == HAIKU_LINES and all(
        len(line.strip()) in HAIKU_LINE_CHARACTERS and len(line.split()) in HAIKU_LINE_WORDS for line in lines
    )


@dataclass(frozen=True)
class Style:
    """A way of answering, and the rule that tells whether a text keeps to it."""

    name: str
    description: str
    holds: Callable[[str], bool]


@dataclass(frozen=True)
class DemoAdapter:
    """A trained adapter that ships with the package: a PEFT directory."""

    name: str
    path: Path
    style: Style


STYLES = (
    Style("pirate", "answers in pirate talk", speaks_pirate),
    Style("json", "answers as one JSON object", is_one_json_object),
    Style("haiku", "answers in three short lines", is_haiku),
)

_HERE = Path(__file__).resolve().parent


def style_named(name: str) -> Style:
    """The style of that name; KeyError when there is none."""
    return {style.name: style for style in STYLES}[name]


def texts_path(name: str) -> Path:
    """Where the training texts of a style lie."""
    return _HERE / "texts" / f"{name}.jsonl"


def demo_adapters() -> tuple[DemoAdapter, ...]:
    """The shipped adapters, one for each style, in the order of STYLES."""
    return tuple(DemoAdapter(style.name, _HERE / "adapters" / style.name, style) for style in STYLES)
