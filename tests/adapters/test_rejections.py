"""Names, pairs and weights that cannot be served, beyond one file for each rule (that is test_validation_table)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.modules import Linear, ModuleTable
from lorikeet_adapters.validate import ValidatedAdapter
from tests.support.lora_files import (
    PEFT_PREFIX,
    AdapterFiles,
    safetensors_bytes,
    tensor_name,
    tensors,
    validate_folder,
    write_files,
)

Arrays = dict[str, np.ndarray[Any, Any]]
Change = Callable[[Arrays], None]
Q_A = tensor_name(0, "self_attn.q_proj", "A")
Q_B = tensor_name(0, "self_attn.q_proj", "B")


def validate(files: AdapterFiles, *, max_rank: int = 64) -> ValidatedAdapter:
    return validate_folder(files.config.parent, max_rank=max_rank)


def rejection(files: AdapterFiles, **options: Any) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        validate(files, **options)
    return caught.value


def renamed(old: str, new: str) -> Change:
    def change(content: Arrays) -> None:
        content[new] = content.pop(old)

    return change


def added(name: str, *shape: int) -> Change:
    def change(content: Arrays) -> None:
        content[name] = np.ones(shape, np.float32)

    return change


def without(name: str) -> Change:
    def change(content: Arrays) -> None:
        del content[name]

    return change


DECODER = f"{PEFT_PREFIX}layers.0.self_attn.q_proj"
FAR_LAYER = tensor_name(9999, "self_attn.q_proj", "A")
NEXT_LAYER = tensor_name(2, "self_attn.q_proj", "A")
OTHER_MODULE = tensor_name(0, "self_attn.qkv_proj", "A")
PADDED_LAYER = f"{PEFT_PREFIX}layers.01.mlp.up_proj.lora_A.weight"
OTHER_FAMILY = "base_model.model.transformer.h.0.attn.lora_A.weight"
HEAD = "base_model.model.lm_head.lora_A.weight"
SECOND_SPELLING = tensor_name(0, "self_attn.q_proj", "A", adapter=".default")
SECOND_PREFIX = tensor_name(0, "self_attn.q_proj", "A", prefix="model.")

CHANGES: list[tuple[str, str, Change]] = [
    ("tensor_name_invalid", "lm_head.weight", added("lm_head.weight", 4, 4)),
    ("tensor_name_invalid", f"{DECODER}.lora_C.weight", added(f"{DECODER}.lora_C.weight", 4, 4)),
    ("tensor_name_invalid", "x" * 300, added("x" * 300, 4, 4)),
    ("tensor_name_invalid", "", added("", 4, 4)),
    ("tensor_name_invalid", SECOND_SPELLING, added(SECOND_SPELLING, 4, 32)),
    ("tensor_name_invalid", SECOND_PREFIX, added(SECOND_PREFIX, 4, 32)),
    ("module_unknown", FAR_LAYER, renamed(Q_A, FAR_LAYER)),
    ("module_unknown", NEXT_LAYER, renamed(Q_A, NEXT_LAYER)),
    ("module_unknown", OTHER_MODULE, renamed(Q_A, OTHER_MODULE)),
    ("module_unknown", PADDED_LAYER, added(PADDED_LAYER, 4, 32)),
    ("module_unknown", OTHER_FAMILY, added(OTHER_FAMILY, 4, 32)),
    ("module_not_allowed", HEAD, added(HEAD, 4, 32)),
    ("pair_incomplete", Q_B, without(Q_A)),
    ("pair_incomplete", Q_A, without(Q_B)),
    ("shape_invalid", Q_A, added(Q_A, 128)),
    ("base_model_mismatch", Q_A, added(Q_A, 4, 64)),
    ("base_model_mismatch", Q_B, added(Q_B, 64, 4)),
    ("base_model_mismatch", Q_B, added(Q_B, 4, 32)),
    ("rank_mismatch", Q_B, added(Q_B, 32, 5)),
    ("vector_mismatch", f"{DECODER}.lora_magnitude_vector", added(f"{DECODER}.lora_magnitude_vector", 32)),
    ("vector_mismatch", f"{DECODER}.lora_B.bias", added(f"{DECODER}.lora_B.bias", 32)),
    ("feature_unsupported", "bias", added(f"{DECODER}.base_layer.bias", 32)),
    ("feature_unsupported", "kasa_config", added(f"{DECODER}.lora_diag", 4)),
    ("feature_unsupported", "modules_to_save", added("base_model.model.lm_head.modules_to_save.weight", 4, 4)),
]


@pytest.mark.parametrize(("code", "param", "change"), CHANGES)
def test_tensors_that_cannot_be_served_are_refused_by_name(
    code: str, param: str, change: Change, tmp_path: Path
) -> None:
    content = tensors()
    change(content)
    error = rejection(write_files(tmp_path, content))
    assert error.code == code
    assert error.param is not None
    assert error.param.removesuffix("...") == param[: len(error.param.removesuffix("..."))]


def test_every_unmatched_name_is_listed_up_to_a_bound(tmp_path: Path) -> None:
    content = {**tensors(), **{f"other.{k:02}": np.ones((2, 2), np.float32) for k in range(20)}}
    error = rejection(write_files(tmp_path, content))
    assert "20 names" in error.message
    assert "'other.00', 'other.01'" in error.message
    assert "12 more" in error.message


def test_an_adapter_in_which_nothing_matches_never_passes(tmp_path: Path) -> None:
    content = {
        "encoder.a.lora_A.weight": np.ones((4, 32), np.float32),
        "encoder.a.lora_B.weight": np.ones((32, 4), np.float32),
    }
    assert rejection(write_files(tmp_path, content)).code == "module_unknown"


@pytest.mark.parametrize(
    ("code", "changes", "max_rank"),
    [
        ("rank_mismatch", {"r": 8}, 64),
        ("rank_mismatch", {"rank_pattern": {"q_proj": 8}}, 64),
        ("rank_too_large", {"r": 65}, 64),
        ("rank_too_large", {"r": 2**31}, 64),
        ("rank_too_large", {"rank_pattern": {"nothing": 4096}}, 64),
        ("rank_too_large", {}, 3),
        ("rank_too_large", {"r": 10**19}, 10**20),
        ("scaling_too_large", {"lora_alpha": 257}, 64),
        ("scaling_too_large", {"alpha_pattern": {"v_proj": 4096}}, 64),
        ("vector_mismatch", {"use_dora": True}, 64),
        ("vector_mismatch", {"lora_bias": True}, 64),
    ],
)
def test_a_configuration_that_contradicts_the_tensors_is_refused(
    code: str, changes: dict[str, Any], max_rank: int, tmp_path: Path
) -> None:
    assert rejection(write_files(tmp_path, **changes), max_rank=max_rank).code == code


@pytest.mark.parametrize(("dtype", "bad"), [("BF16", 0x7F80), ("BF16", 0xFFC1), ("F16", 0x7C00), ("F16", 0xFE00)])
def test_sixteen_bit_weights_are_checked_by_their_bits(dtype: str, bad: int, tmp_path: Path) -> None:
    content: Arrays = {name: np.full(array.shape, 0x3C01, np.uint16) for name, array in tensors().items()}
    assert validate(write_files(tmp_path / "good", safetensors_bytes(content, dtype=dtype))).dtype.endswith("16")
    content[Q_B][3, 1] = bad
    content[Q_B][0, 0] = bad
    error = rejection(write_files(tmp_path / "bad", safetensors_bytes(content, dtype=dtype)))
    assert (error.code, error.param) == ("non_finite_weights", Q_B)
    assert "found 2 values" in error.message


def test_targets_without_tensors_and_another_name_of_the_model_are_warnings(tmp_path: Path) -> None:
    files = write_files(
        tmp_path,
        tensors(layers=(0,)),
        target_modules=["q_proj", "v_proj", "lm_head"],
        rank_pattern={"k_proj": 8},
        base_model_name_or_path="../../etc/other-model",
    )
    warnings = validate(files).warnings
    assert [warning.partition(":")[0] for warning in warnings] == [
        "target_without_tensors",
        "pattern_without_module",
        "base_model_name_differs",
    ]
    assert "model.layers.1.self_attn.q_proj" in warnings[0]
    assert "'lm_head'" in warnings[0]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    width = 1 << 20
    wide = ModuleTable("wide", 1, {"self_attn.q_proj": Linear(width, width)})
    content = {Q_A: np.zeros((16, width), np.uint16), Q_B: np.zeros((width, 16), np.uint16)}
    files = write_files(tmp_path, safetensors_bytes(content, dtype="BF16"), r=16)
    content.clear()
    tracemalloc.start()
    try:
        validate_folder(tmp_path, wide, max_rank=16)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert files.weights.stat().st_size > 64 << 20
    assert peak < 24 << 20
