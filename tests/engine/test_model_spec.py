"""The shape of a model is read from its config as transformers reads it, or the model is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import spec_from_config

SMALL = {
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}


def spec(architecture: str, **fields: Any) -> Any:
    return spec_from_config({"architectures": [architecture], **SMALL, **fields}, eos=2)


@pytest.mark.parametrize(
    ("architecture", "config_class", "fields"),
    [
        ("Qwen2ForCausalLM", "Qwen2Config", {"sliding_window": 32}),
        ("Qwen2ForCausalLM", "Qwen2Config", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 3}),
        ("Qwen3ForCausalLM", "Qwen3Config", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 2}),
        ("MistralForCausalLM", "MistralConfig", {"sliding_window": 32}),
        ("MistralForCausalLM", "MistralConfig", {"sliding_window": None}),
        ("SmolLM3ForCausalLM", "SmolLM3Config", {}),
        ("SmolLM3ForCausalLM", "SmolLM3Config", {"no_rope_layer_interval": 3}),
        ("LlamaForCausalLM", "LlamaConfig", {}),
    ],
)
def test_windows_and_rotary_layers_follow_transformers_defaults(
    architecture: str, config_class: str, fields: dict[str, Any]
) -> None:
    theirs = getattr(transformers, config_class)(**SMALL, **fields, pad_token_id=0)
    ours = spec(architecture, **fields)
    kinds = getattr(theirs, "layer_types", None)
    window = getattr(theirs, "sliding_window", None) or 0
    if kinds is None:
        kinds = ["sliding_attention" if window else "full_attention"] * 6
    assert ours.sliding_window == tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    assert ours.tied_embeddings == theirs.tie_word_embeddings
    assert ours.rope_layers == tuple(bool(x) for x in getattr(theirs, "no_rope_layers", None) or [1] * 6)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        spec_from_config({"architectures": ["LlamaForCausalLM"], **SMALL, **fields}, eos=2)


def test_the_refusal_of_an_architecture_lists_those_that_are_covered() -> None:
    with pytest.raises(UnsupportedModel, match=r"LlamaForCausalLM.*Qwen3ForCausalLM"):
        spec("BertModel")
