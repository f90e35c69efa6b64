"""The prompts of the equality suite, and the shipped adapters they are asked of."""

from __future__ import annotations

from pathlib import Path

import lorikeet_adapters.demo

ADAPTERS_DIR = Path(lorikeet_adapters.demo.__file__).parent / "adapters"
BASE = "base"
N_TOKENS = 48
PROMPTS = (
    "What is the capital of France?",
    "Tell me about the sea.",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "Name three fruits that are red.",
    "What should I wear when it rains?",
    "Explain what a library is to a child, in two sentences.",
    "Which is heavier, a kilogram of feathers or a kilogram of iron, and why?",
)


def adapter_dirs() -> dict[str, Path]:
    """The demo adapters' PEFT directories, by name."""
    return {path.name: path for path in sorted(ADAPTERS_DIR.iterdir()) if path.is_dir()}
