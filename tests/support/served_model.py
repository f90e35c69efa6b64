"""The directory of a model that gateways serve, and what its engine says it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.ascii_tokenizer import save_ascii_tokenizer, save_chat_template


@dataclass(frozen=True)
class ServedModel:
    """`digest` is what the engine must say for a worker to trust it."""

    folder: Path
    digest: str


def model_to_talk_to(folder: Path) -> ServedModel:
    """What a gateway needs of a model, tokenizer and chat template; there is nothing that a worker could compute on."""
    (folder / "config.json").write_text("{}")
    save_ascii_tokenizer(folder)
    save_chat_template(folder)
    return ServedModel(folder, "0" * 64)
