"""A tiny model that can read: its tokens are the 128 characters of ASCII, and it has no chat template."""

from __future__ import annotations

from pathlib import Path

from tests.support.ascii_tokenizer import save_ascii_tokenizer
from tests.support.tiny_models import save_model


def save_reading_model(directory: Path) -> Path:
    save_model("qwen2", directory)
    save_ascii_tokenizer(directory)
    return directory
