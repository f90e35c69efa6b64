"""PEFT is the oracle: what it saves is validated, normalised and packed, and must mean the same product."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_adapters.digest import read_normalised_file
from lorikeet_adapters.image import AdapterImage, pack_image
from lorikeet_adapters.manifest import BIAS, DORA
from lorikeet_adapters.modules import MODULES
from lorikeet_adapters.validate import ValidatedAdapter
from tests.adapters.conftest import SavePeft
from tests.support.lora_files import N_LAYERS, TABLE, WIDTHS, normalise_folder

CASES: dict[str, dict[str, Any]] = {
    "all linears": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "one module": {"r": 1, "lora_alpha": 3, "target_modules": ["k_proj"]},
    "dotted names": {"r": 4, "lora_alpha": 8, "target_modules": ["self_attn.q_proj", "mlp.down_proj"]},
    "a regular expression": {"r": 4, "lora_alpha": 8, "target_modules": r".*\.(q|v)_proj$"},
    "one layer": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1]},
    "layers pattern": {"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"},
    "excluded": {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "exclude_modules": ["o_proj", "down_proj"]},
    "rslora 16": {"r": 16, "lora_alpha": 16, "use_rslora": True, "target_modules": ["q_proj", "v_proj"]},
    "rslora 64": {"r": 64, "lora_alpha": 16, "use_rslora": True, "target_modules": ["gate_proj"]},
    "patterns": {
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "rank_pattern": {"layers.1.self_attn.q_proj": 32, "layers.1.self_attn.v_proj": 32, "down_proj": 3},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 128, "layers.1.self_attn.v_proj": 128},
    },
    "first pattern wins": {
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj"],
        "rank_pattern": {"^model.layers.0.self_attn.q_proj": 2, "q_proj": 5, "self_attn.q_proj": 5},
        "alpha_pattern": {"proj": 99, "self_attn.q_proj": 7, "q_proj": 1},
    },
    "patterns and rslora": {
        "r": 4,
        "lora_alpha": 9,
        "use_rslora": True,
        "target_modules": ["q_proj", "up_proj"],
        "rank_pattern": {"q_proj": 10},
        "alpha_pattern": {r"mlp\.up_proj": 13},
    },
    "orthogonal": {"r": 4, "lora_alpha": 8, "init_lora_weights": "orthogonal", "target_modules": ["q_proj"]},
    "expressions in patterns": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": r".*\.(q|v|up)_proj",
        "rank_pattern": {r"layers\.1\..*v_proj": 7, "(q|k)_proj$": 2},
        "alpha_pattern": {r"\d+\.mlp\.up_proj": 5, "^model.*q_proj": 3},
    },
    "layers by another pattern": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "up_proj"],
        "layers_to_transform": [1],
        "layers_pattern": ["h", "model.layers"],
    },
    "mica": {"r": 4, "lora_alpha": 8, "init_lora_weights": "MiCA", "target_modules": ["q_proj", "up_proj"]},
    "eva": {"r": 4, "lora_alpha": 8, "init_lora_weights": "eva", "target_modules": ["q_proj"]},
    "gaussian": {"r": 4, "lora_alpha": 8, "init_lora_weights": "gaussian", "target_modules": ["o_proj"]},
}

EXPECTED_WARNINGS = {"first pattern wins": "pattern_without_module"}


def pack(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[ValidatedAdapter, AdapterImage]:
    adapter, digest, data = normalise_folder(folder)
    assert hashlib.sha256(data).hexdigest() == digest
    return adapter, pack_image(data, digest=digest, table=TABLE, dtype=dtype)


def block(image: AdapterImage, layer: int, module: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A and Bt read the way architecture section 8 describes it, independently of the packing code."""
    n_head = N_LAYERS * 7 * 2
    head = image.extent.view(torch.int32)[:n_head].view(N_LAYERS, 7, 2)
    start, rank = (int(value) for value in head[layer, MODULES.index(module)])
    if rank == 0:
        assert start == 0
        return None
    n_in, n_out = WIDTHS[module]
    a = 16 * start
    b = a + rank * n_in
    return image.extent[a:b].view(rank, n_in), image.extent[b : b + rank * n_out].view(rank, n_out)


@pytest.mark.parametrize("name", CASES)
def test_a_packed_adapter_multiplies_as_peft_does(name: str, save_peft: SavePeft) -> None:
    model, folder = save_peft(task_type="CAUSAL_LM", **CASES[name])
    adapter, image = pack(folder)
    n_found = 0
    for layer in range(N_LAYERS):
        for module in MODULES:
            linear = model.get_submodule(f"base_model.model.model.layers.{layer}.{module}")
            found = block(image, layer, module)
            if not hasattr(linear, "lora_A"):
                assert found is None
                continue
            assert found is not None
            n_found += 1
            x = torch.randn(5, WIDTHS[module][0], generator=torch.Generator().manual_seed(7))
            with torch.no_grad():
                expected = linear.lora_B["default"](linear.lora_A["default"](x)) * linear.scaling["default"]
            torch.testing.assert_close(x @ found[0].T @ found[1], expected, rtol=2e-5, atol=2e-5)
            delta = next(delta for delta in adapter.deltas if (delta.layer, delta.module) == (layer, module))
            assert delta.scale == linear.scaling["default"]
            assert delta.rank == linear.r["default"]
    assert n_found == len(adapter.deltas) == adapter.tensor_count // 2
    assert not [line for line in adapter.warnings if not line.startswith(EXPECTED_WARNINGS.get(name, "none"))]


def test_the_whole_model_answers_as_with_peft(save_peft: SavePeft, tiny_llama: Any) -> None:
    model, folder = save_peft(task_type="CAUSAL_LM", **CASES["patterns"])
    _, image = pack(folder)
    hooks = []
    for layer in range(N_LAYERS):
        for module in MODULES:
            found = block(image, layer, module)
            if found is not None:
                linear = tiny_llama.get_submodule(f"model.layers.{layer}.{module}")
                hooks.append(linear.register_forward_hook(lambda _m, x, y, ab=found: y + x[0] @ ab[0].T @ ab[1]))
    tokens = torch.arange(12).view(1, 12)
    try:
        with torch.no_grad():
            ours = tiny_llama(tokens).logits
            theirs = model(tokens).logits
    finally:
        for hook in hooks:
            hook.remove()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(theirs, tiny_llama(tokens).logits, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scale_is_folded_in_float32_and_rounded_once(dtype: torch.dtype, save_peft: SavePeft) -> None:
    model, folder = save_peft(dtype=dtype, r=3, lora_alpha=10, target_modules=["up_proj"])
    adapter, image = pack(folder, dtype)
    linear = model.get_submodule("base_model.model.model.layers.1.mlp.up_proj")
    found = block(image, 1, "mlp.up_proj")
    assert found is not None
    scaled = linear.lora_B["default"].weight.float() * (10 / 3)
    assert torch.equal(found[0], linear.lora_A["default"].weight)
    assert torch.equal(found[1], scaled.T.to(dtype))
    assert adapter.serving_bytes(2) == image.extent.numel() * 2
    assert image.extent.numel() == 16 * image.n_grains


def test_the_configuration_peft_writes_without_a_task_is_accepted(save_peft: SavePeft) -> None:
    _, folder = save_peft(r=4, lora_alpha=8, target_modules=["q_proj"])
    adapter, _ = pack(folder)
    assert adapter.target_modules == ("self_attn.q_proj",)


VECTORS: dict[str, dict[str, Any]] = {
    "lora_bias": {"lora_bias": True, "r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
    "lora_bias, rslora and patterns": {
        "lora_bias": True,
        "r": 4,
        "lora_alpha": 9,
        "use_rslora": True,
        "target_modules": ["q_proj", "up_proj"],
        "rank_pattern": {".*q_proj": 10},
        "layers_to_transform": [1],
    },
    "dora": {"use_dora": True, "r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
    "dora, rslora and patterns": {
        "use_dora": True,
        "r": 4,
        "lora_alpha": 9,
        "use_rslora": True,
        "target_modules": ["v_proj", "down_proj"],
        "alpha_pattern": {"(v|k)_proj": 3},
    },
    "dora orthogonal": {"use_dora": True, "init_lora_weights": "orthogonal", "r": 2, "target_modules": ["k_proj"]},
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_the_parameter_that_peft_loads(name: str, save_peft: SavePeft) -> None:
    """The scale, the rank and the vector of every module; that the engine computes with them is tested there."""
    options = VECTORS[name]
    model, folder = save_peft(task_type="CAUSAL_LM", **options)
    adapter, _, data = normalise_folder(folder)
    deltas = {(delta.layer, delta.module): delta for delta in read_normalised_file(data, hash_of(data)).deltas}
    n_found = 0
    for layer in range(N_LAYERS):
        for module in MODULES:
            linear = model.get_submodule(f"base_model.model.model.layers.{layer}.{module}")
            if not hasattr(linear, "lora_A"):
                assert (layer, module) not in deltas
                continue
            n_found += 1
            delta = deltas[layer, module]
            assert (delta.scale, delta.rank) == (linear.scaling["default"], linear.r["default"])
            assert delta.vector is not None
            if "lora_bias" in options:
                assert delta.kind == BIAS
                theirs = linear.lora_B["default"].bias
            else:
                assert delta.kind == DORA
                theirs = linear.lora_magnitude_vector["default"].weight
            ours = torch.frombuffer(bytearray(data[delta.vector.begin : delta.vector.end]), dtype=torch.float32)
            assert torch.equal(ours, theirs)
    assert n_found == len(deltas) == adapter.tensor_count // 3
    assert adapter.warnings == ()


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
