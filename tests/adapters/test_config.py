"""Every field PEFT can write has a verdict, and every verdict does what it says."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig
from peft.utils.other import get_pattern_key

from lorikeet_adapters.config import FIELD_VERDICTS, Verdict, read_config
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.patterns import parse_pattern
from tests.support.lora_files import CONFIG

PEFT_FIELDS = sorted(field.name for field in dataclasses.fields(LoraConfig))
REFUSED = {name for name, verdict in FIELD_VERDICTS.items() if verdict.verdict is Verdict.REFUSED}
EMPTY: tuple[object, ...] = (None, False, "", [], {})
PATHS = [
    f"{prefix}layers.{layer}.{module}"
    for prefix in ("model.", "")
    for layer in (0, 1, 10, 11)
    for module in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj")
]


def read(**changes: Any) -> Any:
    return read_config(json.dumps({**CONFIG, **changes}).encode())


def refusal(**changes: Any) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        read(**changes)
    return caught.value


def test_every_field_of_the_installed_peft_has_a_verdict_with_a_reason() -> None:
    assert sorted(FIELD_VERDICTS) == PEFT_FIELDS
    for name, verdict in FIELD_VERDICTS.items():
        assert re.fullmatch(r"[A-Z].{10,}\.", verdict.reason), name


def test_what_peft_writes_by_default_is_accepted(tmp_path: Any) -> None:
    LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj"], task_type="CAUSAL_LM").save_pretrained(tmp_path)
    settings = read_config((tmp_path / "adapter_config.json").read_bytes())
    assert (settings.rank, settings.alpha, settings.target_modules) == (8, 16, ("q_proj",))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_field_is_named_with_its_value_and_accepted_when_empty(name: str) -> None:
    error = refusal(**{name: {"some": "thing"}})
    assert (error.code, error.param) == ("feature_unsupported", name)
    assert "{'some': 'thing'}" in error.message
    assert FIELD_VERDICTS[name].reason in error.message
    for empty in EMPTY:
        read(**{name: empty})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bias", "all"),
        ("bias", "lora_only"),
        ("peft_type", "ADALORA"),
        ("peft_type", None),
        ("task_type", "SEQ_CLS"),
        ("modules_to_save", ["lm_head"]),
        ("use_dora", True),
        ("lora_bias", True),
        ("fan_in_fan_out", True),
        ("trainable_token_indices", [1, 2]),
        ("target_parameters", ["experts.gate_up_proj"]),
        ("layer_replication", [[0, 2], [1, 3]]),
        ("alora_invocation_tokens", [5]),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "pissa_niter_16"),
        ("init_lora_weights", "olora"),
        ("init_lora_weights", "corda"),
        ("init_lora_weights", "loftq"),
        ("init_lora_weights", "lora_ga"),
        ("init_lora_weights", "something_new"),
        ("init_lora_weights", 1),
        ("a_field_of_the_future", True),
        ("a_field_of_the_future", 0),
    ],
)
def test_what_changes_answers_is_refused_by_name(field: str, value: object) -> None:
    error = refusal(**{field: value})
    assert (error.code, error.param) == ("feature_unsupported", field)
    assert ascii(value) in error.message


def test_an_unknown_field_without_content_is_no_reason_to_refuse() -> None:
    for empty in EMPTY:
        read(a_field_of_the_future=empty)


@pytest.mark.parametrize("init", [True, False, None, "gaussian", "Gaussian", "eva", "orthogonal", "mica"])
def test_initialisations_that_leave_the_base_model_alone_are_served(init: object) -> None:
    read(init_lora_weights=init)


def test_peft_may_name_the_class_of_the_model_but_nothing_imports_it() -> None:
    read(auto_mapping={"base_model_class": "os.system", "parent_library": "antigravity"})


@pytest.mark.parametrize(
    ("code", "field", "value"),
    [
        ("rank_invalid", "r", 0),
        ("rank_invalid", "r", -1),
        ("rank_invalid", "r", True),
        ("rank_invalid", "r", 8.0),
        ("rank_invalid", "r", "8"),
        ("rank_invalid", "r", None),
        ("rank_invalid", "rank_pattern", {"q_proj": 0}),
        ("config_invalid", "rank_pattern", ["q_proj"]),
        ("alpha_invalid", "lora_alpha", 0),
        ("alpha_invalid", "lora_alpha", -1),
        ("alpha_invalid", "lora_alpha", 4097),
        ("alpha_invalid", "lora_alpha", 1e308),
        ("alpha_invalid", "lora_alpha", True),
        ("alpha_invalid", "lora_alpha", "16"),
        ("alpha_invalid", "alpha_pattern", {"q_proj": None}),
        ("config_invalid", "use_rslora", "true"),
        ("config_invalid", "use_rslora", 1),
        ("config_invalid", "target_modules", {"q_proj": 1}),
        ("config_invalid", "target_modules", ["q_proj", 1]),
        ("config_invalid", "exclude_modules", [None]),
        ("config_invalid", "layers_to_transform", ["0"]),
        ("config_invalid", "layers_to_transform", True),
        ("config_invalid", "base_model_name_or_path", 7),
        ("pattern_not_allowed", "rank_pattern", {".*q_proj": 4}),
        ("pattern_not_allowed", "rank_pattern", {"(q|v)_proj": 4}),
        ("pattern_not_allowed", "alpha_pattern", {r"layers\.\d+\.q_proj": 4}),
        ("pattern_not_allowed", "alpha_pattern", {"": 4}),
        ("pattern_not_allowed", "alpha_pattern", {"q" * 257: 4}),
        ("pattern_not_allowed", "alpha_pattern", {"q_proj\n": 4}),
    ],
)
def test_a_bad_value_is_refused_with_its_field(code: str, field: str, value: object) -> None:
    error = refusal(**{field: value})
    assert (error.code, error.param) == (code, field)


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


@given(
    st.one_of(
        st.sampled_from(PATHS).flatmap(lambda path: st.integers(0, len(path) - 1).map(lambda cut: path[cut:])),
        st.text("layers.01_qkup", min_size=1, max_size=12),
    ),
    st.booleans(),
    st.booleans(),
)
def test_plain_pattern_keys_match_exactly_what_peft_matches(key: str, anchored: bool, escaped: bool) -> None:
    key = ("^" if anchored else "") + (key.replace(".", r"\.") if escaped else key)
    pattern = parse_pattern("rank_pattern", key)
    for path in PATHS:
        assert pattern.matches(path) == (get_pattern_key([key], path) == key), (key, path)
