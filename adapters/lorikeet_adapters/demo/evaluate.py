"""Greedy answers of a transformers model to the held-out prompts, and how many of them keep to a style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lorikeet_adapters.demo.styles import Style

MAX_NEW_TOKENS = 64


def prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The token ids of one user turn with the chat template and the opening of the answer."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def greedy_answers(model: Any, tokenizer: Any, prompts: Sequence[str]) -> list[str]:
    """Answers in float32, all prompts in one left-padded batch."""
    rows = [prompt_ids(tokenizer, prompt) for prompt in prompts]
    width = max(map(len, rows))
    ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    model.eval()
    with torch.inference_mode():
        output = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=MAX_NEW_TOKENS,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    answers: list[str] = tokenizer.batch_decode(output[:, width:], skip_special_tokens=True)
    return answers


def count_holding(style: Style, answers: Sequence[str]) -> int:
    """How many answers the style's predicate accepts."""
    return sum(style.holds(answer) for answer in answers)
