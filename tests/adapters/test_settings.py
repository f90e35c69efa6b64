"""What a configuration must be as a whole: strict JSON, bounded, complete, and loadable by PEFT."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from peft import LoraConfig

from lorikeet_adapters.config.settings import MAX_EXPRESSIONS, as_record, read_config
from lorikeet_adapters.errors import AdapterRejected
from tests.support.lora_files import CONFIG


def read(**changes: Any) -> Any:
    return read_config(json.dumps({**CONFIG, **changes}).encode())


def refusal(**changes: Any) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        read(**changes)
    return caught.value


@pytest.mark.parametrize("field", ["r", "lora_alpha"])
def test_the_numbers_that_make_the_scale_must_be_written_down(field: str) -> None:
    config = {name: value for name, value in CONFIG.items() if name != field}
    with pytest.raises(AdapterRejected, match=field):
        read_config(json.dumps(config).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"r": NaN}',
        b'{"r": 1, "r": 2}',
        b'{"lora_alpha": 1e400}',
        b'{"r": 1' + b"0" * 40 + b"}",
        b'{"x": ' + b"[" * 9 + b"]" * 9 + b"}",
        b'\xef\xbb\xbf{"r": 1}',
    ],
)
def test_a_configuration_that_is_not_strict_json_is_refused(data: bytes) -> None:
    with pytest.raises(AdapterRejected) as caught:
        read_config(data)
    assert (caught.value.code, caught.value.param) == ("config_invalid", "adapter_config.json")


def test_a_large_configuration_is_refused_unread() -> None:
    with pytest.raises(AdapterRejected) as caught:
        read_config(b" " * (64 * 1024 + 1))
    assert caught.value.code == "adapter_too_large"


def test_the_scale_is_alpha_over_rank_or_over_its_root() -> None:
    plain = read(lora_alpha=10, alpha_pattern={"v_proj": 3.5})
    stabilised = read(lora_alpha=10, use_rslora=True)
    assert plain.scale_of("model.layers.0.self_attn.q_proj", 3) == 10 / 3
    assert plain.scale_of("model.layers.0.self_attn.v_proj", 3) == 3.5 / 3
    assert stabilised.scale_of("model.layers.0.self_attn.q_proj", 3) == 10 / math.sqrt(3)


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ("lora_bias", {"lora_bias": True, "use_dora": True}),
        ("init_lora_weights", {"lora_bias": True, "init_lora_weights": "gaussian"}),
        ("init_lora_weights", {"lora_bias": True, "init_lora_weights": None}),
        ("layers_to_transform", {"target_modules": ".*q_proj", "layers_to_transform": 0}),
        ("layers_to_transform", {"target_modules": "all-linear", "layers_to_transform": []}),
        ("layers_pattern", {"target_modules": "all-linear", "layers_pattern": ""}),
        ("layers_pattern", {"layers_pattern": "layers"}),
    ],
)
def test_v16_options_that_peft_does_not_combine_are_refused_by_name(named: str, changes: dict[str, Any]) -> None:
    error = refusal(**changes)
    assert (error.code, error.param) == ("config_invalid", named)
    with pytest.raises(ValueError, match=r"\w"):
        LoraConfig(**{**CONFIG, **changes})


def test_v16_dora_is_not_combined_with_mica_whose_layer_peft_has_for_itself() -> None:
    assert refusal(use_dora=True, init_lora_weights="mica").param == "init_lora_weights"


@pytest.mark.parametrize("changes", [{"use_dora": True, "init_lora_weights": "gaussian"}, {"lora_bias": True}])
def test_a_flag_of_a_vector_is_kept(changes: dict[str, Any]) -> None:
    settings = read(**changes)
    assert (settings.use_dora, settings.lora_bias) == ("use_dora" in changes, "lora_bias" in changes)
    assert as_record(settings)["use_dora"] == ("use_dora" in changes)


def test_v17_the_number_of_expressions_is_bounded_and_that_of_names_is_larger() -> None:
    many = {f"layers.{number}.mlp.up_proj": 4 for number in range(MAX_EXPRESSIONS + 1)}
    assert len(read(rank_pattern=many).rank_patterns) == MAX_EXPRESSIONS + 1
    error = refusal(rank_pattern={f"{key}$": 4 for key in many})
    assert (error.code, error.param) == ("pattern_not_allowed", "rank_pattern")


def test_reading_evaluates_no_expression() -> None:
    read(target_modules="((a+)+)+$", rank_pattern={"(": 2}, exclude_modules="*")


def test_the_record_of_a_version_is_small_however_long_the_configuration_is() -> None:
    names = [f"layers.{number}.{'x' * 200}" for number in range(100)]
    settings = read(
        target_modules=[f"{name}\u00e9" for name in names],
        rank_pattern=dict.fromkeys(names, 2),
        base_model_name_or_path="\u00e9" * 999,
    )
    record = as_record(settings)
    assert len(json.dumps(record)) < 32 << 10
    assert list(record["rank_pattern"].values())[-1] == "36 more"  # type: ignore[attr-defined]
