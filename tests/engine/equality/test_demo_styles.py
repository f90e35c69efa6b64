"""Each demo adapter keeps to its style on prompts it was not trained on; the base model does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lorikeet_adapters.demo.styles import HELD_OUT_PROMPTS, STYLES, Style
from lorikeet_engine.text.tokenizer import Tokenizer
from tests.engine.equality.bench import Workbench, make_request, run
from tests.engine.equality.prompts import BASE

pytestmark = pytest.mark.slow

MAX_TOKENS = 64
AT_LEAST_WITH_ADAPTER, AT_MOST_WITH_BASE = 8, 2


@pytest.fixture(scope="module")
def answers(float32: Workbench, embedded_model_dir: Path) -> dict[str, list[str]]:
    """The answers to the held-out prompts, of the base model and of every demo adapter."""
    tokenizer = Tokenizer(embedded_model_dir)
    prompts = [list(tokenizer.encode_chat([{"role": "user", "content": text}])) for text in HELD_OUT_PROMPTS]
    names = [BASE, *(style.name for style in STYLES)]
    requests = [
        make_request(float32, name, index, prompt, MAX_TOKENS) for name in names for index, prompt in enumerate(prompts)
    ]
    tokens = run(float32, [requests], steps_between=1)
    return {name: [tokenizer.decode(tokens[f"{name}-{index}"]) for index in range(len(prompts))] for name in names}


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_the_adapter_keeps_to_its_style_and_the_base_model_does_not(
    style: Style, answers: dict[str, list[str]]
) -> None:
    assert sum(style.holds(answer) for answer in answers[style.name]) >= AT_LEAST_WITH_ADAPTER, answers[style.name]
    assert sum(style.holds(answer) for answer in answers[BASE]) <= AT_MOST_WITH_BASE, answers[BASE]
