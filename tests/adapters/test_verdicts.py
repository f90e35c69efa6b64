"""Every field PEFT can write has a verdict, and PEFT itself agrees with each of them."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaForCausalLM

from lorikeet_adapters.config.settings import read_config
from lorikeet_adapters.config.verdicts import FIELD_VERDICTS, Verdict
from lorikeet_adapters.errors import AdapterRejected
from tests.support.lora_files import CONFIG

PEFT_FIELDS = {field.name: field for field in dataclasses.fields(LoraConfig)}
REFUSED = {name: verdict for name, verdict in FIELD_VERDICTS.items() if verdict.verdict is Verdict.REFUSED}
IRRELEVANT = {name for name, verdict in FIELD_VERDICTS.items() if verdict.verdict is Verdict.IRRELEVANT}
OK = ""  # in the place of a code: the value is served


def each(code: str, *values: object) -> list[tuple[object, str]]:
    return [(value, code) for value in values]


# For every field of LoraConfig: values that say something, and the code each gets.
FIELD_VALUES: dict[str, list[tuple[object, str]]] = {
    "alora_invocation_tokens": [([5], "feature_unsupported"), ([], "feature_unsupported")],
    "alpha_pattern": [
        ({"q_proj": 3.5}, OK),
        ({r".*\.[qv]_proj": 4}, OK),
        ({"q_proj": None}, "alpha_invalid"),
        ({"q_proj": -1}, "alpha_invalid"),
        (None, "config_invalid"),
        ({"q" * 257: 4}, "pattern_not_allowed"),
    ],
    "arrow_config": [({"top_k": 2}, "feature_unsupported"), ({}, "feature_unsupported")],
    "auto_mapping": [({"base_model_class": "os.system", "parent_library": "antigravity"}, OK)],
    "base_model_name_or_path": [("/etc/passwd", OK), (7, "config_invalid")],
    "bias": [("all", "feature_unsupported"), ("lora_only", "feature_unsupported"), (None, "feature_unsupported")],
    "corda_config": [({"corda_method": "kpm"}, OK), ("kpm", "config_invalid")],
    "ensure_weight_tying": [(True, "feature_unsupported"), (0, "feature_unsupported")],
    "eva_config": [
        ({"rho": 1.5, "tau": 0.9, "whiten": True}, OK),
        ({"rho": 0.5}, "config_invalid"),
        ({"tau": 2}, "config_invalid"),
        ([], "config_invalid"),
    ],
    "exclude_modules": [(["o_proj"], OK), (r".*\.o_proj", OK), ([None], "config_invalid"), (False, "config_invalid")],
    "fan_in_fan_out": [(True, "feature_unsupported")],
    "inference_mode": [(True, OK), (False, OK)],
    "init_lora_weights": [
        *each(OK, True, False, None, "gaussian", "Gaussian", "eva", "orthogonal", "mica", "MiCA"),
        *each("feature_unsupported", "pissa", "pissa_niter_16", "olora", "corda", "loftq"),
        *each("feature_unsupported", "lora_ga", "EVA", "Orthogonal", "something_new", 1, [], ""),
    ],
    "kasa_config": [({}, "feature_unsupported"), ({"beta": 0.1}, "feature_unsupported")],
    "layer_replication": [([[0, 2], [1, 3]], "feature_unsupported"), ([], OK)],
    "layers_pattern": [("layers", "config_invalid"), (["layers"], "config_invalid"), (3, "config_invalid"), ([], OK)],
    "layers_to_transform": [(1, OK), ([0, 1], OK), (["0"], "config_invalid"), (True, "config_invalid")],
    "loftq_config": [({"loftq_bits": 4}, OK)],
    "lora_alpha": [
        (0.5, OK),
        *each("alpha_invalid", 0, -1, 4097, 1e308, True, "16", None),
    ],
    "lora_bias": [(True, OK), (None, OK), (1, "config_invalid"), ("true", "config_invalid")],
    "lora_dropout": [(0.5, OK), (1, OK), (1.5, "config_invalid"), (-0.1, "config_invalid"), (None, "config_invalid")],
    "lora_ga_config": [({"stable_gamma": 8}, OK), (False, "config_invalid")],
    "megatron_config": [({"tensor_model_parallel_size": 2}, "feature_unsupported"), ({}, OK)],
    "megatron_core": [("os", OK)],
    "modules_to_save": [(["lm_head"], "feature_unsupported"), ([], OK), ({}, "feature_unsupported")],
    "monteclora_config": [({}, "feature_unsupported"), ({"num_samples": 4}, "feature_unsupported")],
    "peft_type": [("ADALORA", "feature_unsupported"), ("lora", "feature_unsupported"), (None, "feature_unsupported")],
    "peft_version": [("99.0", OK)],
    "qalora_group_size": [(4, OK)],
    "r": [(64, OK), *each("rank_invalid", 0, -1, True, 8.0, "8", None)],
    "rank_pattern": [
        ({"q_proj": 2}, OK),
        ({"(q|v)_proj": 2}, OK),
        ({"q_proj": 0}, "rank_invalid"),
        (["q_proj"], "config_invalid"),
        (None, "config_invalid"),
    ],
    "revision": [("refs/pr/1", OK)],
    "runtime_config": [({"ephemeral_gpu_offload": True}, OK)],
    "target_modules": [
        ("all-linear", OK),
        (r".*\.(q|v)_proj$", OK),
        (["self_attn.q_proj", "mlp.down_proj"], OK),
        (None, OK),
        ({"q_proj": 1}, "config_invalid"),
        (["q_proj", 1], "config_invalid"),
        ("q" * 257, "pattern_not_allowed"),
    ],
    "target_parameters": [(["experts.gate_up_proj"], "feature_unsupported"), ([], "feature_unsupported")],
    "task_type": [(None, OK), ("SEQ_CLS", "feature_unsupported"), ("", "feature_unsupported")],
    "trainable_token_indices": [([1, 2], "feature_unsupported"), ({}, "feature_unsupported")],
    "use_bdlora": [
        ({"nblocks": 2}, "feature_unsupported"),
        ({}, "feature_unsupported"),
        (False, "feature_unsupported"),
    ],
    "use_dora": [(True, OK), (None, OK), (1, "config_invalid")],
    "use_qalora": [(True, "feature_unsupported"), (1, "feature_unsupported")],
    "use_rslora": [(True, OK), (None, OK), ("true", "config_invalid")],
    "velora_config": [({}, "feature_unsupported"), ({"num_groups": 4}, "feature_unsupported")],
}
CASES = [(name, value, code) for name, values in FIELD_VALUES.items() for value, code in values]
OFF = [(name, off) for name, verdict in REFUSED.items() for off in verdict.off]


def read(**changes: Any) -> Any:
    return read_config(json.dumps({**CONFIG, **changes}).encode())


def refusal(**changes: Any) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        read(**changes)
    return caught.value


def loaded_by_peft(model: LlamaForCausalLM, folder: Path, **changes: Any) -> Any:
    """The saved adapter under a configuration with `changes`, loaded the way a user loads it."""
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    return PeftModel.from_pretrained(copy.deepcopy(model), folder).eval()


@pytest.fixture(scope="module")
def plain_adapter(tiny_llama: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    model = get_peft_model(copy.deepcopy(tiny_llama), LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(plain_adapter: Path, tmp_path: Path) -> Path:
    for file in plain_adapter.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def answers(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(torch.arange(8).view(1, 8)).logits
    return logits


def test_every_field_of_the_installed_peft_has_a_verdict_with_a_reason() -> None:
    assert sorted(FIELD_VERDICTS) == sorted(PEFT_FIELDS)
    for name, verdict in FIELD_VERDICTS.items():
        assert re.fullmatch(r"[A-Z].{10,}\.", verdict.reason), name


def test_every_field_has_values_in_the_table_of_this_test() -> None:
    assert sorted(FIELD_VALUES) == sorted(PEFT_FIELDS)
    for name, values in FIELD_VALUES.items():
        served = {code == OK for _, code in values}
        assert name == "bias" or name == "peft_type" or served >= {FIELD_VERDICTS[name].verdict is not Verdict.REFUSED}


def test_what_peft_writes_is_known_here_down_to_the_last_key(tmp_path: Path) -> None:
    """V-16: keys beside the fields, such as the version, would be as dangerous as unknown fields."""
    LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj"], task_type="CAUSAL_LM").save_pretrained(
        tmp_path, auto_mapping_dict={"base_model_class": "LlamaForCausalLM"}
    )
    data = (tmp_path / "adapter_config.json").read_bytes()
    assert set(json.loads(data)) <= set(FIELD_VERDICTS)
    settings = read_config(data)
    assert (settings.rank, settings.alpha, settings.targets.modules) == (8, 16, frozenset({"q_proj"}))


@pytest.mark.parametrize(("name", "value", "code"), CASES)
def test_v16_each_value_of_each_field_is_served_or_refused_with_its_name(name: str, value: object, code: str) -> None:
    if code == OK:
        read(**{name: value})
        return
    error = refusal(**{name: value})
    assert (error.code, error.param) == (code, name)
    if code == "feature_unsupported" and FIELD_VERDICTS[name].verdict is Verdict.REFUSED:
        assert FIELD_VERDICTS[name].reason in error.message
        assert ascii(value)[:100] in error.message


@pytest.mark.parametrize(("name", "off"), OFF)
def test_a14_a_value_that_passes_as_off_is_off_in_peft_too(
    name: str, off: object, tiny_llama: LlamaForCausalLM, adapter: Path, plain_adapter: Path
) -> None:
    read(**{name: off})
    model = loaded_by_peft(tiny_llama, adapter, **{name: off})
    linear = model.get_submodule("base_model.model.model.layers.0.self_attn.q_proj")
    assert type(linear).__name__ == "Linear"
    assert not linear.lora_variant
    assert torch.equal(answers(model), answers(loaded_by_peft(tiny_llama, plain_adapter)))


@pytest.mark.parametrize("name", ["arrow_config", "kasa_config", "monteclora_config", "use_bdlora", "velora_config"])
def test_a14_an_empty_object_that_switches_a_feature_on_in_peft_is_refused(name: str) -> None:
    config = LoraConfig(**{**CONFIG, name: {}})
    assert getattr(config, name), "PEFT no longer takes an empty object for its defaults"
    assert refusal(**{name: {}}).param == name


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, value, code in CASES if name in IRRELEVANT and code == OK]
)
def test_an_irrelevant_field_changes_no_answer_of_peft(
    name: str, value: object, tiny_llama: LlamaForCausalLM, adapter: Path, plain_adapter: Path
) -> None:
    changed = loaded_by_peft(tiny_llama, adapter, **{name: value})
    assert torch.equal(answers(changed), answers(loaded_by_peft(tiny_llama, plain_adapter)))


@pytest.mark.parametrize("value", [True, 0, 1, "x", [1], {"some": "thing"}])
def test_v16_a_field_of_the_future_that_says_something_is_refused(value: object) -> None:
    error = refusal(a_field_of_the_future=value)
    assert (error.code, error.param) == ("feature_unsupported", "a_field_of_the_future")


@pytest.mark.parametrize("value", [None, False, "", [], {}])
def test_an_unknown_field_without_content_is_no_reason_to_refuse(value: object) -> None:
    read(a_field_of_the_future=value)


@pytest.mark.parametrize("name", ["self", "cls"])
def test_a_name_that_peft_cannot_take_is_refused(name: str) -> None:
    assert refusal(**{name: None}).param == name
