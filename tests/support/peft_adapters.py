"""The options that are served exactly, an adapter of each, and the spellings that PEFT has for an adapter's files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

from lorikeet_adapters.files import CONFIG_FILE, WEIGHTS_FILE

Options = Mapping[str, Any]
PEFT_PREFIX = "base_model.model.model."
SOME = ["q_proj", "v_proj", "down_proj"]

# By option of the exactness list. A12's own numbers are in `patterns`.
OPTIONS: dict[str, Options] = {
    "all_linear": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "some_modules": {"r": 3, "lora_alpha": 7, "target_modules": ["k_proj", "up_proj"]},
    "some_layers": {"r": 4, "lora_alpha": 8, "target_modules": [*SOME, "o_proj"], "layers_to_transform": [1]},
    "regular_expression": {"r": 4, "lora_alpha": 9, "target_modules": r".*\.(q|v)_proj$"},
    "rslora_16": {"r": 16, "lora_alpha": 16, "use_rslora": True, "target_modules": SOME},
    "rslora_64": {"r": 64, "lora_alpha": 16, "use_rslora": True, "target_modules": SOME},
    "patterns": {
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj"],
        "rank_pattern": {r"layers\.1\.self_attn\..*": 32},
        "alpha_pattern": {r"layers\.1\.self_attn\..*": 128},
    },
    "mixed_ranks": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": "all-linear",
        "rank_pattern": {"q_proj": 1, "v_proj": 17, "layers.0.mlp.gate_proj": 33, "down_proj": 5},
    },
    "lora_bias": {"r": 8, "lora_alpha": 16, "lora_bias": True, "target_modules": "all-linear"},
    "lora_bias_rslora": {"r": 6, "lora_alpha": 4, "lora_bias": True, "use_rslora": True, "target_modules": SOME},
    "dora": {"r": 8, "lora_alpha": 16, "use_dora": True, "target_modules": "all-linear"},
    "dora_rslora": {"r": 16, "lora_alpha": 4, "use_dora": True, "use_rslora": True, "target_modules": "all-linear"},
    "dora_patterns": {
        "r": 4,
        "lora_alpha": 8,
        "use_dora": True,
        "target_modules": ["q_proj", "k_proj", "o_proj", "gate_proj"],
        "layers_to_transform": [0],
        "rank_pattern": {"k_proj": 9},
        "alpha_pattern": {"o_proj": 1},
    },
}

# What is left of an option in the files, and how they look to somebody who does not know it.
MARKS = {"lora_bias": "lora_B.bias", "use_dora": "lora_magnitude_vector"}


def spell(source: Path, folder: Path, *, prefix: str = PEFT_PREFIX, name: str = "") -> Path:
    """The same tensors with another prefix, and with the adapter's name inside theirs.

    PEFT writes the targets that it found as whole paths; they would name no module behind another prefix.
    """
    tensors = {}
    for key, tensor in load_file(source / WEIGHTS_FILE).items():
        for part in ("lora_A", "lora_B", "lora_magnitude_vector"):
            key = key.replace(part, part + name)
        tensors[prefix + key.removeprefix(PEFT_PREFIX)] = tensor
    targets = sorted({key.rsplit(".lora_")[0].rsplit(".", 1)[1] for key in tensors})
    return _write(source, folder, tensors, {"target_modules": targets})


def shard(source: Path, folder: Path, *, n_bytes: int) -> Path:
    """The same tensors in files of up to so many bytes, with their index."""
    save_torch_state_dict(
        load_file(source / WEIGHTS_FILE),
        _write(source, folder, None),
        filename_pattern="adapter_model{suffix}.safetensors",
        max_shard_size=n_bytes,
    )
    return folder


def without(source: Path, folder: Path, field: str) -> Path:
    """The adapter as somebody reads it who ignores one field and the tensors that belong to it."""
    tensors = load_file(source / WEIGHTS_FILE)
    if mark := MARKS.get(field):
        tensors = {key: tensor for key, tensor in tensors.items() if mark not in key}
    return _write(source, folder, tensors, {field: {} if field.endswith("_pattern") else False})


def _write(source: Path, folder: Path, tensors: dict[str, torch.Tensor] | None, changes: Options | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / CONFIG_FILE).read_text()) | dict(changes or {})
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    if tensors is not None:
        save_file(tensors, folder / WEIGHTS_FILE, {"format": "pt"})
    return folder
