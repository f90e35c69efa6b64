"""Which modules are targeted is decided here exactly as the installed PEFT decides it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as PEFT_DEFAULTS

from lorikeet_adapters.config.settings import read_config
from lorikeet_adapters.config.targets import DEFAULT_TARGETS
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.modules import MODULES
from tests.support.lora_files import CONFIG, PEFT_PREFIX, tensors, validate_folder, write_files

PATHS = [
    f"{prefix}layers.{layer}.{module}"
    for prefix in ("model.", "", "language_model.model.", "model.language_model.")
    for layer in (0, 1, 12)
    for module in MODULES
]
NAMES = st.lists(
    st.one_of(
        st.sampled_from(PATHS),
        st.sampled_from(MODULES),
        st.sampled_from(
            ["q_proj", "v_proj", "proj", "_proj", "0.mlp.up_proj", "layers.1.mlp.up_proj", "", ".", "lm_head"]
        ),
    ),
    max_size=4,
)
EXPRESSIONS = st.sampled_from(
    [
        r".*\.(q|v)_proj$",
        "q_proj",
        ".*",
        "",
        r"model\.layers\.[01]\..*",
        ".*q_proj|.*up_proj",
        "model.layers.0.mlp.up_proj",
    ]
)
LAYERS = st.one_of(st.none(), st.integers(-1, 13), st.lists(st.integers(0, 13), max_size=3))
LAYERS_PATTERNS = st.one_of(
    st.none(),
    st.sampled_from(["layers", "h", "", "layer.", "(h|layers)", "layers|h"]),
    st.lists(st.sampled_from(["layers", "h", "model.layers", "x|layers"]), max_size=2),
)


def peft_targets(config: LoraConfig, path: str) -> bool:
    return bool(check_target_module_exists(config, path))


def compare(fields: dict[str, Any]) -> None:
    text = json.dumps({**CONFIG, **fields})
    try:
        config = LoraConfig(**json.loads(text))
    except ValueError:
        with pytest.raises(AdapterRejected):
            read_config(text.encode())
        return
    targets = read_config(text.encode()).targets
    for path in PATHS:
        assert targets.include(path) == peft_targets(config, path), (fields, path)


@given(NAMES, st.one_of(st.none(), NAMES, EXPRESSIONS), LAYERS, LAYERS_PATTERNS)
def test_listed_names_mean_what_they_mean_to_peft(names: list[str], exclude: Any, layers: Any, pattern: Any) -> None:
    compare(
        {
            "target_modules": names,
            "exclude_modules": exclude,
            "layers_to_transform": layers,
            "layers_pattern": pattern,
        }
    )


@given(EXPRESSIONS, st.one_of(st.none(), NAMES, EXPRESSIONS))
def test_an_expression_means_what_it_means_to_peft(expression: str, exclude: Any) -> None:
    compare({"target_modules": expression, "exclude_modules": exclude})


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_no_targets_mean_those_that_peft_chooses_for_the_families_served(family: str) -> None:
    assert set(PEFT_DEFAULTS[family]) == DEFAULT_TARGETS


Q_V: tuple[str, ...] = ("self_attn.q_proj", "self_attn.v_proj")


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": ["self_attn.q_proj", "model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.v_proj"]},
        {"target_modules": r".*\.(q|v)_proj$"},
        {
            "target_modules": "all-linear",
            "exclude_modules": ["k_proj", "o_proj", "mlp.gate_proj", "up_proj", "down_proj"],
        },
        {"target_modules": "All-Linear", "exclude_modules": r".*\.(k_proj|o_proj|gate_proj|up_proj|down_proj)"},
        {"target_modules": None},
        {"layers_to_transform": [0, 1]},
        {"layers_to_transform": [0, 1], "layers_pattern": "layers"},
        {"layers_to_transform": [0, 1, 5], "layers_pattern": ["h", "model.layers"]},
        {"exclude_modules": ".*never_there.*"},
    ],
)
def test_a15_targets_may_be_written_in_every_way_peft_knows(changes: dict[str, Any], tmp_path: Path) -> None:
    adapter = validate_folder(write_files(tmp_path, **changes).config.parent)
    assert (adapter.target_modules, adapter.warnings) == (Q_V, ())


def test_a15_a_name_without_tensors_is_a_warning_that_says_so(tmp_path: Path) -> None:
    files = write_files(tmp_path, target_modules=["q_proj", "v_proj", "lm_head", "mlp.up_proj"])
    (warning,) = validate_folder(files.config.parent).warnings
    assert warning.startswith("target_without_tensors")
    assert "'model.layers.0.mlp.up_proj'" in warning
    assert "'lm_head'" in warning


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": ["q_proj"]},
        {"target_modules": []},
        {"target_modules": ""},
        {"target_modules": ".*q_proj"},
        {"target_modules": "self_attn.v_proj|q_proj"},
        {"target_modules": "all-linear", "exclude_modules": ["v_proj"]},
        {"layers_to_transform": [1]},
        {"layers_to_transform": 0},
        {"layers_to_transform": [0, 1], "layers_pattern": "h"},
        {"exclude_modules": ["model.layers.1.self_attn.v_proj"]},
        {"exclude_modules": r".*\.1\.self_attn\.v_proj"},
    ],
)
def test_v18_tensors_that_peft_would_leave_out_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(write_files(tmp_path, **changes).config.parent)
    assert caught.value.code == "target_mismatch"
    assert re.fullmatch(
        re.escape(PEFT_PREFIX) + r"layers\.[01]\.self_attn\.[qv]_proj\.lora_A\.weight", caught.value.param or ""
    )


def test_v18_no_targets_at_all_do_not_cover_a_module_that_peft_would_not_choose(tmp_path: Path) -> None:
    content = tensors(modules=("self_attn.k_proj",))
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(write_files(tmp_path, content, target_modules=None).config.parent)
    assert caught.value.code == "target_mismatch"
