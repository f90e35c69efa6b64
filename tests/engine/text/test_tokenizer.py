"""Our tokenizer against transformers' own, of which it leaves out what is around the tokenizing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from lorikeet_engine.text.tokenizer import Tokenizer
from tests.support.ascii_tokenizer import save_ascii_tokenizer, save_chat_template

TEXTS = ("", "Hello, world!", " two  spaces \n", "<|im_start|>user\nhi<|im_end|>", "é 漢字 🦜 \u202e", "x" * 2000)


@pytest.fixture(params=["ascii", pytest.param("embedded", marks=pytest.mark.slow)])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The small one says in its file that texts are to be cut and filled, which no request may meet."""
    if request.param == "embedded":
        found: Path = request.getfixturevalue("embedded_model_dir")
        return found
    save_ascii_tokenizer(tmp_path)
    save_chat_template(tmp_path)
    file = tmp_path / "tokenizer.json"
    told = json.loads(file.read_text())
    told["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    told["padding"] = {
        "strategy": {"Fixed": 16},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "\x00",
    }
    file.write_text(json.dumps(told))
    return tmp_path


def test_texts_and_conversations_have_the_tokens_that_transformers_gives_them(directory: Path) -> None:
    ours, theirs = Tokenizer(directory), PreTrainedTokenizerFast.from_pretrained(str(directory), local_files_only=True)
    for text in TEXTS:
        assert ours.encode(text) == tuple(theirs.encode(text))
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}]
        rendered = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert ours.encode_chat(messages) == tuple(theirs.encode(rendered, add_special_tokens=False))


def test_tokens_have_the_text_that_transformers_gives_them(directory: Path) -> None:
    ours, theirs = Tokenizer(directory), PreTrainedTokenizerFast.from_pretrained(str(directory), local_files_only=True)
    for text in TEXTS:
        ids = list(ours.encode(text))
        for n in (len(ids), len(ids) // 2, 1):
            expected = theirs.decode(ids[:n], skip_special_tokens=True, clean_up_tokenization_spaces=False)
            assert ours.decode(ids[:n]) == expected
