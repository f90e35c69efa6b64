"""What PEFT is asked: the adapter its author meant, whatever the author's model called its modules."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lorikeet_adapters.config import patterns
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_engine.certification.compared.oracle import PeftOracle
from lorikeet_engine.certification.measured import failures
from lorikeet_engine.certification.measuring import Measurer
from lorikeet_engine.model_spec import load_model_spec
from tests.engine.certification.conftest import Made, Make
from tests.support.lora_files import normalise_folder
from tests.support.tiny_models import load_adapted_oracle, oracle_logits, save_adapter, save_model

PEFT_LAYERS = "base_model.model.model.layers."
TEXT = tuple(range(5, 30))


def respelt(source: Path, folder: Path, prefix: str = PEFT_LAYERS, without: str = "", **changes: Any) -> Path:
    """The adapter in `source` under another prefix, with changed fields of its configuration and fewer tensors."""
    folder.mkdir()
    config = json.loads((source / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))
    state = load_file(source / "adapter_model.safetensors")
    kept = {name: tensor for name, tensor in state.items() if not without or without not in name}
    save_file(
        {name.replace(PEFT_LAYERS, prefix): tensor for name, tensor in kept.items()},
        folder / "adapter_model.safetensors",
    )
    return folder


@pytest.mark.parametrize(
    ("prefix", "changes"),
    [
        ("language_model.model.", {"target_modules": ["language_model.model.layers.{n}.self_attn.q_proj"]}),
        ("language_model.model.", {"target_modules": r"language_model\.model\.layers\.\d\.self_attn\.q_proj"}),
        (
            "model.language_model.",
            {
                "target_modules": ["q_proj"],
                "layers_to_transform": [0, 1],
                "layers_pattern": "model.language_model.layers",
            },
        ),
        ("", {"target_modules": ["layers.{n}.self_attn.q_proj"]}),
        ("", {"target_modules": r"layers\.\d\.self_attn\.q_proj"}),
    ],
)
def test_a13_names_in_a_configuration_are_those_of_its_authors_model(
    measurer: Measurer, make: Make, tmp_path: Path, prefix: str, changes: dict[str, Any]
) -> None:
    ranks, alphas = {"layers.0.self_attn.q_proj": 7}, {"layers.1.self_attn.q_proj": 3}
    plain = make(target_modules=["q_proj"], rank_pattern=ranks, alpha_pattern=alphas)
    targets = changes["target_modules"]
    if isinstance(targets, list):
        targets = [name.format(n=layer) for name in targets for layer in (0, 1)]
    folder = respelt(
        plain.folder,
        tmp_path / "spelt",
        f"base_model.model.{prefix}layers.",
        **changes
        | {
            "target_modules": targets,
            "rank_pattern": {f"^{prefix}layers.0.self_attn.q_proj": 7},
            "alpha_pattern": {f"^{prefix}layers.1.self_attn.q_proj": 3},
        },
    )
    _, digest, data = normalise_folder(folder, measurer.table)
    image = folder.with_suffix(".image")
    image.write_bytes(data)
    measured = measurer.measure(folder=folder, image=image, digest=digest, serving_dtype="float16")
    assert failures(measured) == ()
    assert measured == measurer.measure(**plain.given)


@pytest.mark.parametrize("architecture", ["qwen3", "smollm3", "llama_tied_biased"])
@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": "all-linear"},
        {"target_modules": r".*\.(q|down)_proj", "rank_pattern": {r"1\..*q_proj": 6}, "use_rslora": True},
        {"target_modules": ["q_proj", "v_proj"], "exclude_modules": ["layers.0.self_attn.q_proj"], "use_dora": True},
        {"target_modules": ["q_proj"], "layers_to_transform": 1, "alpha_pattern": {"q_proj": 2}},
        {"target_modules": ["q_proj", "lm_head"]},
    ],
    ids=str,
)
def test_a10_spelt_out_modules_are_those_that_peft_adapts_itself(
    architecture: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model_dir = save_model(architecture, tmp_path / "model")
    saved = save_adapter(model_dir, tmp_path / "saved", **{"r": 4, "lora_alpha": 8, **options})
    folder = respelt(saved, tmp_path / "adapter", without="lm_head")
    oracle = PeftOracle(model_dir, load_model_spec(model_dir).module_table("tiny"))
    expected = oracle_logits(load_adapted_oracle(model_dir, folder), list(TEXT))
    for _ in range(2):
        torch.testing.assert_close(oracle.logits(folder, [TEXT])[0], expected, rtol=0, atol=0)


@pytest.mark.parametrize("start", [False, None])
def test_f1_peft_leaves_random_numbers_where_no_tensors_are_and_such_a_file_is_refused_twice(
    measurer: Measurer, make: Make, model_dir: Path, tmp_path: Path, start: bool | None
) -> None:
    folder = respelt(make().folder, tmp_path / "half", without="v_proj", init_lora_weights=start)
    one, other = (oracle_logits(load_adapted_oracle(model_dir, folder), list(TEXT)) for _ in range(2))
    assert not torch.allclose(one, other)
    with pytest.raises(AdapterRejected) as rejected:
        normalise_folder(folder, measurer.table)
    assert rejected.value.code == "target_mismatch"
    assert "model.layers.0.self_attn.v_proj" in rejected.value.message
    with pytest.raises(AdapterRejected, match="tensors are missing"):
        PeftOracle(model_dir, measurer.table).logits(folder, [TEXT])


@pytest.mark.parametrize("start", [True, "gaussian", "eva", "orthogonal", "mica"])
def test_a15_elsewhere_a_module_without_tensors_changes_nothing_to_peft(
    measurer: Measurer, make: Make, model_dir: Path, tmp_path: Path, start: bool | str
) -> None:
    targets = ["q_proj", "v_proj", "lm_head"]
    folder = respelt(
        make().folder, tmp_path / "half", without="v_proj", init_lora_weights=start, target_modules=targets
    )
    expected = oracle_logits(load_adapted_oracle(model_dir, folder), list(TEXT))
    adapter, digest, data = normalise_folder(folder, measurer.table)
    assert "lm_head" in adapter.warnings[0]
    image = folder.with_suffix(".image")
    image.write_bytes(data)
    assert failures(measurer.measure(folder=folder, image=image, digest=digest, serving_dtype="float16")) == ()
    found = PeftOracle(model_dir, measurer.table).logits(folder, [TEXT])[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target_modules": r".*self_attn"}, "self_attn cannot have an adapter"),
        ({"target_modules": ["q_proj", "norm"]}, "norm cannot have an adapter"),
        ({"target_modules": ["nothing"]}, "nothing is targeted"),
        ({"rank_pattern": {"q_proj": 5}}, "size mismatch"),
        ({"target_modules": ["q_proj"]}, "no place for 4 tensors"),
    ],
)
def test_what_peft_does_not_load_is_the_files_fault_and_the_next_adapter_is_measured(
    measurer: Measurer, make: Make, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    plain = make()
    before = measurer.measure(**plain.given)
    folder = respelt(plain.folder, tmp_path / "changed", **changes)
    with pytest.raises(AdapterRejected, match=reason) as rejected:
        measurer.measure(**plain.given | {"folder": folder})
    assert rejected.value.code == "certificate_failed"
    assert measurer.measure(**plain.given) == before


def test_an_error_of_pefts_own_is_the_files_fault_and_the_next_adapter_is_measured(
    measurer: Measurer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    before = measurer.measure(**made.given)

    def fail(*_: Any) -> None:
        raise ValueError("some " + "text" * 100)

    with monkeypatch.context() as patch:
        patch.setattr("lorikeet_engine.certification.compared.oracle.PeftModel", fail)
        with pytest.raises(AdapterRejected) as rejected:
            measurer.measure(**made.given)
    assert rejected.value.code == "certificate_failed"
    assert len(rejected.value.message) < 400
    assert measurer.measure(**made.given) == before


# Cheap on every path of a layer, years on the output layer's name.
SLOW = r"(?=lm_head$)(?:.|.?|.??|.*|.*?|.+|.+?){5,9}X|.*\.(?:q|v)_proj"


@pytest.mark.parametrize("field", ["target_modules", "exclude_modules", "rank_pattern", "alpha_pattern"])
def test_a19_an_expression_that_one_module_makes_slow_is_stopped_beside_peft_as_well(
    measurer: Measurer, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    plain: Made = make()
    slow = {SLOW: 4} if field.endswith("_pattern") else SLOW
    changes: dict[str, Any] = {field: slow}
    if field.endswith("_pattern"):
        changes["target_modules"] = ["q_proj", "v_proj", "lm_head"]
    folder = respelt(plain.folder, tmp_path / "slow", **changes)
    monkeypatch.setattr(
        "lorikeet_engine.certification.compared.oracle.limited_time", lambda: patterns.limited_time(0.3)
    )
    started = time.monotonic()
    with pytest.raises(AdapterRejected) as rejected:
        measurer.measure(**plain.given | {"folder": folder})
    assert rejected.value.code == "pattern_not_allowed"
    assert time.monotonic() - started < 20
