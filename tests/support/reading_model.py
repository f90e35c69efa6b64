"""A tiny model that can read: its tokens are the 128 characters of ASCII, and it has no chat template."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from tests.support.tiny_models import VOCAB, save_model


def save_reading_model(directory: Path) -> Path:
    save_model("qwen2", directory)
    tokenizer = Tokenizer(models.WordLevel({chr(code): code for code in range(VOCAB)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory
