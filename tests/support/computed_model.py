"""A tiny model that can be served and computed on: a worker certifies adapters with it. Imports torch."""

from __future__ import annotations

from pathlib import Path

from lorikeet_engine.build import digest_of_model
from tests.support.ascii_tokenizer import save_chat_template
from tests.support.reading_model import save_reading_model
from tests.support.served_model import ServedModel


def model_to_compute_on(folder: Path) -> ServedModel:
    save_reading_model(folder)
    save_chat_template(folder)
    return ServedModel(folder, digest_of_model(folder))
