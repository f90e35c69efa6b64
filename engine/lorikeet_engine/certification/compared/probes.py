"""The fixed texts that every adapter is measured on: chat, prose, code and numbers, short enough for a CPU."""

from __future__ import annotations

from pathlib import Path

from lorikeet_engine.text.tokenizer import Tokenizer

N_TOKENS = 8  # that follow every probe
MAX_PROBE_TOKENS = 64  # the last ones, where a model's own template is long

_TEXTS = (
    "Explain in one sentence why the sky is blue.",
    "Write a short line about a parrot that speaks many languages.",
    "def mean(values):\n    return",
    "Les chiffres: 12, 24, 48, 96,",
)


def probes_of(model_dir: Path) -> tuple[tuple[int, ...], ...]:
    """The texts as token ids of this model, as messages of a user where it has a chat template."""
    tokenizer = Tokenizer(model_dir)
    if tokenizer.has_chat_template:
        encoded = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in _TEXTS]
    else:
        encoded = [tokenizer.encode(text) for text in _TEXTS]
    return tuple(ids[-MAX_PROBE_TOKENS:] for ids in encoded)
