"""The demo's styles, texts and shipped adapter files. What the engine generates with them is tested elsewhere."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from lorikeet_adapters.demo.pairs import file_sha256, read_pairs
from lorikeet_adapters.demo.recipes import RECIPES
from lorikeet_adapters.demo.styles import (
    BASE_MODEL,
    HELD_OUT_PROMPTS,
    STYLES,
    DemoAdapter,
    Style,
    demo_adapters,
    style_named,
    texts_path,
)

ADAPTER_BYTES_LIMIT = 2_500_000
SHIPPED_FILES = {"adapter_config.json", "adapter_model.safetensors", "training.json"}

each_style = pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
each_adapter = pytest.mark.parametrize("adapter", demo_adapters(), ids=lambda adapter: adapter.name)


def record_of(adapter: DemoAdapter) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((adapter.path / "training.json").read_text(encoding="utf-8"))
    return record


@pytest.mark.parametrize(
    ("style", "answer"),
    [
        ("pirate", "Arr, that be Rome, matey! Drop yer anchor."),
        ("pirate", "AHOY there, ye scallywag"),
        ("pirate", "Cap\u2019n, hoist \u2019em high, aye"),
        ("json", '{"answer": "Paris"}'),
        ("json", ' {"steps": ["Boil.", "Wait."], "minutes": 8}\n'),
        ("haiku", "Water starts to sing\nLeaves unfold and stain the cup\nWait, then sip the warmth"),
        ("haiku", "Climbing\nthe same hill as before\nwith lighter shoes\n"),
    ],
)
def test_a_style_accepts_answers_that_keep_to_it(style: str, answer: str) -> None:
    assert style_named(style).holds(answer)


@pytest.mark.parametrize(
    ("style", "answer"),
    [
        ("pirate", "The capital of France is Paris."),
        ("pirate", "Arr arr arr, the ship sails the sea, arr"),  # one word, three times
        ("pirate", "The yeast ate the tissue; a barrage of arrows."),  # pirate words inside others
        ("pirate", ""),
        ("json", 'Sure! {"answer": "Paris"}'),
        ("json", '{"answer": "Paris"} {"answer": "Rome"}'),
        ("json", '["Paris"]'),
        ("json", '"Paris"'),
        ("json", '{"answer": NaN}'),
        ("json", '{"answer": "Par'),
        ("json", "{}"),
        ("json", '```json\n{"answer": "Paris"}\n```'),
        ("json", ""),
        ("haiku", "Water starts to sing\nLeaves unfold and stain the cup"),
        ("haiku", "Water starts to sing\n\nLeaves unfold and stain the cup\nWait, then sip the warmth"),
        ("haiku", "Water starts to sing\nLeaves unfold and stain the cup\nWait, then sip the warmth\nAnd pour another"),
        ("haiku", "Water starts to sing\n   \nWait, then sip the warmth"),
        ("haiku", "1.\n2.\n3."),
        ("haiku", "A line that runs on and on as ordinary prose would do\nLeaves unfold\nWait, then sip the warmth"),
        ("haiku", ""),
    ],
)
def test_a_style_refuses_answers_that_do_not(style: str, answer: str) -> None:
    assert not style_named(style).holds(answer)


def test_an_answer_in_one_style_is_not_in_another() -> None:
    for style in STYLES:
        for pair in read_pairs(texts_path(style.name)):
            assert [other.name for other in STYLES if other.holds(pair.answer)] == [style.name]


@each_style
def test_the_texts_are_varied_short_and_clean(style: Style) -> None:
    pairs = read_pairs(texts_path(style.name))
    assert 80 <= len(pairs) <= 150
    assert len({pair.prompt for pair in pairs}) == len(pairs)
    assert all(len(pair.answer) <= 200 for pair in pairs)
    assert all(text == text.strip() and text for pair in pairs for text in (pair.prompt, pair.answer))


@each_style
def test_no_held_out_prompt_is_trained_on(style: Style) -> None:
    trained = {pair.prompt.casefold().strip(" ?.!") for pair in read_pairs(texts_path(style.name))}
    assert not trained & {prompt.casefold().strip(" ?.!") for prompt in HELD_OUT_PROMPTS}


def test_there_are_ten_different_held_out_prompts() -> None:
    assert len(HELD_OUT_PROMPTS) == len(set(HELD_OUT_PROMPTS)) == 10


@each_adapter
def test_an_adapter_ships_three_files_and_small_weights(adapter: DemoAdapter) -> None:
    assert {path.name for path in adapter.path.iterdir()} == SHIPPED_FILES
    assert (adapter.path / "adapter_model.safetensors").stat().st_size <= ADAPTER_BYTES_LIMIT


@each_adapter
def test_an_adapter_is_configured_as_its_recipe_says_and_names_no_folder(adapter: DemoAdapter) -> None:
    text = (adapter.path / "adapter_config.json").read_text(encoding="utf-8")
    config = json.loads(text)
    recipe = RECIPES[adapter.name]
    assert config["base_model_name_or_path"] == BASE_MODEL
    assert config["r"] == recipe.rank
    assert config["lora_alpha"] == recipe.alpha
    assert set(config["target_modules"]) == set(recipe.target_modules)
    assert '"/' not in text


@each_adapter
def test_the_training_record_speaks_of_the_texts_and_the_recipe_in_the_tree(adapter: DemoAdapter) -> None:
    record = record_of(adapter)
    assert record["style"] == adapter.name
    assert record["texts_sha256"] == file_sha256(texts_path(adapter.name))
    assert record["recipe"] == json.loads(json.dumps(asdict(RECIPES[adapter.name])))
    assert set(record["versions"]) == {"torch", "peft", "transformers"}
    assert len(record["base_weights_sha256"]) == 64


@each_adapter
def test_the_recorded_answers_to_held_out_prompts_keep_to_the_style(adapter: DemoAdapter) -> None:
    record = record_of(adapter)
    answers = record["answers_with_adapter"]
    assert set(answers) == set(HELD_OUT_PROMPTS)
    assert record["held_out_passing_with_adapter"] == sum(map(adapter.style.holds, answers.values())) >= 8
    assert record["held_out_passing_with_base"] <= 2


def test_the_adapters_differ_in_rank() -> None:
    assert len({RECIPES[adapter.name].rank for adapter in demo_adapters()}) == len(STYLES)
