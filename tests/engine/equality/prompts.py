"""The prompts of the equality suite, and the shipped adapters they are asked of."""

from __future__ import annotations

from pathlib import Path

import lorikeet_adapters.demo
from lorikeet_engine.text.tokenizer import Tokenizer

ADAPTERS_DIR = Path(lorikeet_adapters.demo.__file__).parent / "adapters"
BASE = "base"
N_TOKENS = {"chat": 48, "long": 24, "exact": 24}  # length of the answers recorded, where the model goes on so long

QUESTIONS = (
    "What is the capital of France?",
    "Tell me about the sea.",
    "How do I make tea?",
    "Why is the sky blue?",
    "Name three fruits that are red.",
    "What should I wear when it rains?",
    "Explain what a library is to a child, in two sentences.",
    "Which is heavier, a kilogram of feathers or a kilogram of iron, and why?",
)
NOTICE = (
    "The town library is open from nine in the morning until six in the evening, and until eight on Thursdays. "
    "It is closed on Sundays. Members may borrow five books for three weeks, and may keep each of them for another "
    "three weeks if nobody else has asked for it. Children under ten need a parent with them. The reading room on the "
    "second floor is quiet; please take telephone calls in the garden. Coffee is sold beside the front door."
)
QUESTIONS_ABOUT_THE_NOTICE = (
    "When does the library close on a Thursday?",
    "How many books may I borrow?",
    "Where can I buy coffee?",
    "May my son of eight come alone?",
)
EXACT_LENGTHS = (15, 16, 17, 32, 48)  # tokens: about a block of 16, and whole numbers of them


def all_prompts(tokenizer: Tokenizer) -> dict[str, list[tuple[int, ...]]]:
    """Token ids by kind.

    chat: short questions. long: questions about one text, so that their first blocks are the same. exact: plain text
    cut where blocks begin and end.
    """
    notice = tokenizer.encode(NOTICE)
    return {
        "chat": [_ask(tokenizer, question) for question in QUESTIONS],
        "long": [_ask(tokenizer, f"{NOTICE}\n\n{question}") for question in QUESTIONS_ABOUT_THE_NOTICE],
        "exact": [notice[:length] for length in EXACT_LENGTHS],
    }


def adapter_dirs() -> dict[str, Path]:
    """The demo adapters' PEFT directories, by name."""
    return {path.name: path for path in sorted(ADAPTERS_DIR.iterdir()) if path.is_dir()}


def _ask(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tokenizer.encode_chat([{"role": "user", "content": text}])
