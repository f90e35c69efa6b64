"""Every way PEFT and the libraries around it spell a name means its tensor, and no other way means anything (A13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import TensorEntry
from lorikeet_adapters.rules.names import Part, name_tensors
from tests.support.lora_files import tensors, validate_folder, write_files

PREFIXES = {
    "base_model.model.model.": "model.",
    "base_model.model.": "",
    "base_model.model.language_model.model.": "language_model.model.",
    "base_model.model.model.language_model.": "model.language_model.",
    "model.": "model.",
    "": "",
    "language_model.model.": "language_model.model.",
    "model.language_model.": "model.language_model.",
}
PARTS = {
    "lora_A.weight": Part.A,
    "lora_A.default.weight": Part.A,
    "lora_B.weight": Part.B,
    "lora_B.default.weight": Part.B,
    "lora_B.bias": Part.BIAS,
    "lora_B.default.bias": Part.BIAS,
    "lora_magnitude_vector": Part.MAGNITUDE,
    "lora_magnitude_vector.weight": Part.MAGNITUDE,
    "lora_magnitude_vector.default": Part.MAGNITUDE,
    "lora_magnitude_vector.default.weight": Part.MAGNITUDE,
}


def entry(name: str) -> TensorEntry:
    return TensorEntry(name, "F32", (4, 4), 0, 64)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a13_a_known_spelling_is_understood(prefix: str, part: str) -> None:
    (named,) = name_tensors([entry(f"{prefix}layers.12.mlp.up_proj.{part}")])
    assert (named.layer, named.module, named.part) == (12, "mlp.up_proj", PARTS[part])
    assert named.path == f"{PREFIXES[prefix]}layers.12.mlp.up_proj"


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.model.layers.0.mlp.up_proj.lora_A.other.weight",
        "base_model.model.model.layers.0.mlp.up_proj.lora_A.default.default.weight",
        "base_model.model.model.layers.0.mlp.up_proj.lora_A",
        "base_model.model.model.layers.0.mlp.up_proj.lora_A.bias",
        "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight.bias",
        "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector.bias",
        "base_model.model.model.layers.0.mlp.up_proj.lora_embedding_A",
        "base_model.base_model.model.model.layers.0.mlp.up_proj.lora_A.weight",
        "base_model.model.model.model.layers.0.mlp.up_proj.lora_A.weight",
        "base_model.model.model.layers.00.mlp.up_proj.lora_A.weight",
        "base_model.model.model.layers.-1.mlp.up_proj.lora_A.weight",
        "base_model.model.model.layers.\u0661.mlp.up_proj.lora_A.weight",
        "xmodel.layers.0.mlp.up_proj.lora_A.weight",
        "base_modelxmodel.model.layers.0.mlp.up_proj.lora_A.weight",
        " model.layers.0.mlp.up_proj.lora_A.weight",
        "model.layers.0.mlp.up_proj.lora_A.weight\n",
    ],
)
def test_a13_any_other_spelling_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(AdapterRejected) as caught:
        name_tensors([entry("base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"), entry(name)])
    assert caught.value.code in ("tensor_name_invalid", "module_unknown")
    assert ascii(name).strip("'")[:100] in caught.value.message


@pytest.mark.parametrize("kind", ["lora_bias", "use_dora"])
def test_v11_a_vector_is_spelled_as_its_matrices_are(kind: str, tmp_path: Path) -> None:
    content = {name: array for name, array in tensors(adapter=".default").items() if "lora" in name}
    vectors = {name: array for name, array in tensors(vectors=kind).items() if array.ndim == 1}
    flags: dict[str, Any] = {kind: True}
    write_files(tmp_path, {**content, **vectors}, **flags)
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(tmp_path)
    assert (caught.value.code, caught.value.param) == ("tensor_name_invalid", next(iter(vectors)))


def test_a13_no_adapter_without_a_single_module_is_accepted(tmp_path: Path) -> None:
    content = {f"encoder.layers.0.attn.lora_{side}.weight": np.ones((4, 4), np.float32) for side in "AB"}
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(write_files(tmp_path, content).config.parent)
    assert caught.value.code == "module_unknown"
    assert all(name in caught.value.message for name in content)
