"""A tokenizer without a model: its tokens are the 128 characters of ASCII."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

VOCAB = 128
# The prompt is the messages' text and nothing else, so that a test knows how many tokens it asks with.
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def save_ascii_tokenizer(directory: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({chr(code): code for code in range(VOCAB)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()  # or characters are set apart by spaces
    tokenizer.save(str(directory / "tokenizer.json"))


def save_chat_template(directory: Path) -> None:
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(told))
