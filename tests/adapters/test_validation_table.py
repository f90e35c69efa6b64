"""The table of validation (V-1 to V-21, V-24): for every rule, files that break it, their code, and what is named.

V-2, V-22 and V-23 are about uploads, the engine and versions; the tests of the platform hold them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from safetensors import safe_open

from lorikeet_adapters.errors import AdapterRejected, RejectCode
from lorikeet_adapters.files import INDEX_FILE, shard_names
from lorikeet_adapters.weights import open_files, read_tensors
from tests.support.lora_files import (
    CONFIG,
    PEFT_PREFIX,
    safetensors_bytes,
    tensor_name,
    tensors,
    validate_folder,
    vector_name,
    with_header,
    write_files,
    write_shards,
)

Arrays = dict[str, np.ndarray[Any, Any]]
Build = Callable[[Path], object]

WEIGHTS, CONFIG_JSON = "adapter_model.safetensors", "adapter_config.json"
Q_A, Q_B = (tensor_name(0, "self_attn.q_proj", side) for side in "AB")
Q_BIAS, Q_MAGNITUDE = (vector_name(0, "self_attn.q_proj", kind) for kind in ("lora_bias", "use_dora"))
Q_PROJ = f"{PEFT_PREFIX}layers.0.self_attn.q_proj"
GOOD = safetensors_bytes(tensors())
PLATFORM_CODES = {"checksum_mismatch", "certificate_failed", "content_quarantined", "validator_crashed"}


def raw(data: bytes) -> Build:
    """Weights of these bytes."""
    return lambda folder: write_files(folder, data)


def config(**changes: Any) -> Build:
    return lambda folder: write_files(folder, **changes)


def config_text(text: bytes) -> Build:
    return lambda folder: write_files(folder, config=text)


def header(entries: dict[str, Any], n_data: int = 16) -> Build:
    return raw(with_header(json.dumps(entries).encode(), b"\0" * n_data))


def entry(begin: int, end: int, shape: Any = None, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1, (end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def pair(first: dict[str, Any], second: dict[str, Any] | None = None, n_data: int = 16) -> Build:
    return header({"one": first, "two": second or entry(8, 16)}, n_data)


def content(change: Callable[[Arrays], object], vectors: str = "", **changes: Any) -> Build:
    def build(folder: Path) -> None:
        arrays = tensors(vectors=vectors)
        change(arrays)
        write_files(folder, arrays, **changes)

    return build


def put(name: str, *shape: int) -> Build:
    return content(lambda arrays: arrays.update({name: np.ones(shape, np.float32)}))


def value(name: str, number: float, vectors: str = "", **changes: Any) -> Build:
    return content(lambda arrays: arrays[name].ravel().put([-1], number), vectors, **changes)


def without(name: str) -> Build:
    return content(lambda arrays: arrays.pop(name))


def renamed(name: str) -> Build:
    return content(lambda arrays: arrays.update({name: arrays.pop(Q_A)}))


def sparse(folder: Path) -> None:
    """More than two gibibytes, of which the disk holds none."""
    with write_files(folder).weights.open("r+b") as file:
        file.truncate((2 << 30) + 1)


def no_index(folder: Path) -> None:
    (write_shards(folder, [tensors(layers=(0,)), tensors(layers=(1,))]) / INDEX_FILE).unlink()


def wrong_index(folder: Path) -> None:
    names = list(tensors())
    places = dict.fromkeys(names, shard_names(2)[0])
    write_shards(folder, [tensors(layers=(0,)), tensors(layers=(1,))], {"weight_map": places})


def nothing(_folder: Path) -> None:
    pass


ROWS: list[tuple[str, RejectCode, str, Build]] = [
    ("V-1", "invalid_file_set", CONFIG_JSON, nothing),
    ("V-1", "invalid_file_set", WEIGHTS, lambda folder: write_files(folder).weights.unlink()),
    ("V-1", "invalid_file_set", INDEX_FILE, no_index),
    ("V-1", "adapter_too_large", CONFIG_JSON, config_text(b" " * ((64 << 10) + 1))),
    ("V-1", "adapter_too_large", WEIGHTS, sparse),
    ("V-1", "header_length_invalid", WEIGHTS, raw(b"\x02\0\0\0\0\0\0\0{")),
    ("V-1", "size_mismatch", WEIGHTS, raw(GOOD[:-1])),
    ("V-1", "shard_index_invalid", tensor_name(1, "self_attn.q_proj", "A"), wrong_index),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"PK\x03\x04" + bytes(99))),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"\x1f\x8b\x08" + bytes(99))),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"7z\xbc\xaf\x27\x1c" + bytes(99))),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"a".ljust(257, b"\0") + b"ustar\x0000" + bytes(99))),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"\x80\x04\x95" + bytes(99))),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"GGUF\x03" + bytes(99))),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"\x89HDF\r\n\x1a\n" + bytes(99))),
    ("V-3", "unsupported_format", WEIGHTS, raw(b"\x7fELF" + bytes(99))),
    ("V-4", "header_length_invalid", WEIGHTS, raw(b"")),
    ("V-4", "header_length_invalid", WEIGHTS, raw(struct.pack("<Q", 1) + b"{}{}")),
    ("V-4", "header_length_invalid", WEIGHTS, raw(struct.pack("<Q", 2**63) + b"{}{}")),
    ("V-4", "header_too_large", WEIGHTS, raw(struct.pack("<Q", (2 << 20) + 1) + b"{" * ((2 << 20) + 2))),
    ("V-5", "header_invalid", WEIGHTS, raw(with_header(b'\xef\xbb\xbf{"one": 1}'))),
    ("V-5", "header_invalid", WEIGHTS, raw(with_header(b'{"one\xff": 1}'))),
    ("V-5", "header_invalid", WEIGHTS, raw(with_header(b"[]"))),
    ("V-5", "header_invalid", WEIGHTS, raw(with_header(b"{}" + b" " * 1032))),
    ("V-5", "header_invalid", WEIGHTS, raw(with_header(b'{"one": {}, "one": {}}'))),
    ("V-5", "header_invalid", WEIGHTS, raw(with_header(b'{"a": {"b": {"c": {"d": {}}}}}'))),
    ("V-5", "header_invalid", WEIGHTS, raw(with_header(b'{"one": NaN}'))),
    ("V-5", "tensor_entry_invalid", "one", pair(entry(0, 8, [1.0, 2]))),
    ("V-5", "tensor_entry_invalid", "one", pair(entry(0, 8, [True, 2]))),
    ("V-6", "metadata_invalid", WEIGHTS, header({"__metadata__": {"k": 1}})),
    ("V-6", "metadata_invalid", WEIGHTS, header({"__metadata__": {str(k): "" for k in range(65)}})),
    ("V-6", "metadata_invalid", WEIGHTS, header({"__metadata__": {"k": "x" * (16 << 10)}})),
    ("V-7", "tensor_count_invalid", WEIGHTS, header({"one": entry(0, 16)})),
    ("V-7", "tensor_count_invalid", WEIGHTS, header({f"t{k}": {} for k in range(16_385)})),
    ("V-7", "tensor_entry_invalid", "one", pair({"dtype": "F32", "shape": [1, 2]})),
    ("V-7", "tensor_entry_invalid", "one", pair({**entry(0, 8), "more": 1})),
    ("V-8", "dtype_unsupported", "one", pair(entry(0, 8, [1, 1], "F64"))),
    ("V-8", "dtype_unsupported", Q_B, content(lambda arrays: arrays.update({Q_B: arrays[Q_B].astype(np.float16)}))),
    ("V-9", "shape_invalid", "one", pair(entry(0, 8, [1, 1, 2]))),
    ("V-9", "shape_invalid", "one", pair(entry(0, 0, [2**62, 0]))),
    ("V-9", "shape_invalid", Q_A, put(Q_A, 128)),
    ("V-9", "shape_invalid", Q_BIAS,
     content(lambda a: a.update({Q_BIAS: a[Q_BIAS][None]}), "lora_bias", lora_bias=True)),
    ("V-9", "shape_invalid", Q_MAGNITUDE,
     content(lambda a: a.update({Q_MAGNITUDE: a[Q_MAGNITUDE][:, None]}), "use_dora", use_dora=True)),
    ("V-9", "size_overflow", "one", pair(entry(0, 8, [2**20, 2**20]))),
    ("V-9", "offset_mismatch", "one", pair(entry(0, 8, [1, 3]))),
    ("V-10", "offsets_overlap", "two", pair(entry(0, 8), entry(4, 12))),
    ("V-10", "offsets_gap", "one", pair(entry(4, 8))),
    ("V-10", "trailing_data", WEIGHTS, raw(GOOD + b"x")),
    ("V-11", "tensor_name_invalid", "lm_head.weight", put("lm_head.weight", 4, 4)),
    ("V-11", "tensor_name_invalid", "x" * 119 + "...", put("x" * 257, 4, 4)),
    ("V-11", "tensor_name_invalid", "\\xe9", put("\u00e9", 4, 4)),
    ("V-11", "tensor_name_invalid", f"{Q_PROJ}.lora_B.scale", put(f"{Q_PROJ}.lora_B.scale", 32)),
    ("V-11", "tensor_name_invalid", tensor_name(0, "self_attn.q_proj", "A", prefix="model."),
     put(tensor_name(0, "self_attn.q_proj", "A", prefix="model."), 4, 32)),
    ("V-11", "tensor_name_invalid", f"{Q_MAGNITUDE}.weight",
     content(lambda a: a.update({f"{Q_MAGNITUDE}.weight": a[Q_MAGNITUDE]}), "use_dora", use_dora=True)),
    ("V-11", "module_unknown", f"{PEFT_PREFIX}layers.2.mlp.up_proj.lora_A.weight",
     renamed(f"{PEFT_PREFIX}layers.2.mlp.up_proj.lora_A.weight")),
    ("V-11", "module_unknown", "base_model.model.transformer.h.0.attn.lora_A.weight",
     put("base_model.model.transformer.h.0.attn.lora_A.weight", 4, 32)),
    ("V-11", "module_not_allowed", "base_model.model.lm_head.lora_A.weight",
     put("base_model.model.lm_head.lora_A.weight", 4, 32)),
    ("V-11", "feature_unsupported", "modules_to_save", put("base_model.model.lm_head.modules_to_save.weight", 4, 4)),
    ("V-11", "vector_mismatch", Q_BIAS, put(Q_BIAS, 32)),
    ("V-11", "vector_mismatch", Q_MAGNITUDE, put(Q_MAGNITUDE, 32)),
    ("V-12", "pair_incomplete", Q_B, without(Q_A)),
    ("V-12", "pair_incomplete", Q_A, without(Q_B)),
    ("V-12", "vector_mismatch", Q_B, config(lora_bias=True)),
    ("V-12", "vector_mismatch", Q_B, config(use_dora=True)),
    ("V-12", "vector_mismatch", Q_B, content(lambda a: a.pop(Q_BIAS), "lora_bias", lora_bias=True)),
    ("V-13", "base_model_mismatch", Q_A, put(Q_A, 4, 64)),
    ("V-13", "base_model_mismatch", Q_B, put(Q_B, 64, 4)),
    ("V-13", "base_model_mismatch", Q_BIAS,
     content(lambda a: a.update({Q_BIAS: np.ones(31, np.float32)}), "lora_bias", lora_bias=True)),
    ("V-13", "rank_mismatch", Q_B, put(Q_B, 32, 5)),
    ("V-13", "rank_mismatch", Q_A, config(r=8)),
    ("V-13", "rank_mismatch", Q_A, config(rank_pattern={"(q|k)_proj": 8})),
    ("V-14", "rank_invalid", "r", config(r=0)),
    ("V-14", "rank_invalid", "r", config(r=True)),
    ("V-14", "rank_invalid", "rank_pattern", config(rank_pattern={"q_proj": -1})),
    ("V-14", "rank_too_large", "r", config(r=2**31)),
    ("V-14", "rank_too_large", "rank_pattern", config(rank_pattern={"nothing": 65})),
    ("V-15", "alpha_invalid", "lora_alpha", config(lora_alpha=0)),
    ("V-15", "alpha_invalid", "lora_alpha", config(lora_alpha=1e308)),
    ("V-15", "alpha_invalid", "alpha_pattern", config(alpha_pattern={"q_proj": 4097})),
    ("V-15", "scaling_too_large", Q_A, config(lora_alpha=257)),
    ("V-15", "scaling_too_large", Q_A, config(lora_alpha=129, use_rslora=True)),
    ("V-16", "config_invalid", CONFIG_JSON, config_text(b'{"r": 1, "r": 2}')),
    ("V-16", "config_invalid", CONFIG_JSON, config_text(b'{"lora_alpha": Infinity}')),
    ("V-16", "feature_unsupported", "modules_to_save", config(modules_to_save=["lm_head"])),
    ("V-17", "pattern_not_allowed", "target_modules", config(target_modules="q" * 257)),
    ("V-17", "pattern_not_allowed", "rank_pattern", config(rank_pattern={"(": 4})),
    ("V-18", "target_mismatch", tensor_name(0, "self_attn.v_proj", "A"), config(target_modules=["q_proj"])),
    ("V-20", "non_finite_weights", Q_B, value(Q_B, np.nan)),
    ("V-20", "non_finite_weights", Q_A, value(Q_A, -np.inf)),
    ("V-20", "non_finite_weights", Q_BIAS, value(Q_BIAS, np.inf, "lora_bias", lora_bias=True)),
    ("V-20", "non_finite_weights", Q_MAGNITUDE, value(Q_MAGNITUDE, np.nan, "use_dora", use_dora=True)),
    ("V-20", "weight_out_of_range", Q_A, value(Q_A, 65_536.0)),
    ("V-20", "weight_out_of_range", Q_B, value(Q_B, 40_000.0)),
    ("V-20", "weight_out_of_range", Q_BIAS, value(Q_BIAS, -40_000.0, "lora_bias", lora_bias=True)),
]  # fmt: skip


def state_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file in the folder, by content."""
    state = {}
    for path in sorted(folder.rglob("*")):
        with path.open("rb") as file:
            size = path.stat().st_size
            digest = hashlib.sha256(file.read(1 << 20)).hexdigest()
        state[str(path)] = (size, digest)
    return state


@pytest.mark.parametrize(("code", "subject", "build"), [pytest.param(*row, id=rule) for rule, *row in ROWS])
def test_v_a_file_that_breaks_a_rule_gets_its_code_and_name_and_leaves_no_trace(
    code: str, subject: str, build: Build, tmp_path: Path
) -> None:
    build(tmp_path)
    before = state_of(tmp_path)
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(tmp_path)
    error = caught.value
    assert (error.code, error.param) == (code, subject)
    assert error.message.isascii()
    assert len(error.message) < 2048
    assert "found" in error.message
    assert state_of(tmp_path) == before


def test_v_every_code_of_this_package_stands_in_the_table() -> None:
    assert {code for _, code, _, _ in ROWS} == set(get_args(RejectCode)) - PLATFORM_CODES


@pytest.mark.parametrize("name", ["tiny-llama", "Org/Tiny-Llama", "C:\\models\\tiny-llama", "", None])
def test_v19_the_served_model_under_another_spelling_is_no_warning(name: str | None, tmp_path: Path) -> None:
    write_files(tmp_path, base_model_name_or_path=name)
    assert validate_folder(tmp_path).warnings == ()


def test_v19_another_model_of_the_same_shape_is_a_warning_and_never_a_path(tmp_path: Path) -> None:
    write_files(tmp_path, base_model_name_or_path="../../etc/other-model")
    (warning,) = validate_folder(tmp_path).warnings
    assert warning.startswith("base_model_name_differs")


@pytest.mark.parametrize("vectors", ["", "lora_bias"])
def test_v21_an_adapter_that_changes_nothing_is_served_with_a_warning(vectors: str, tmp_path: Path) -> None:
    arrays = tensors(vectors=vectors)
    zeros = {name: np.full_like(array, -0.0) if "lora_B" in name else array for name, array in arrays.items()}
    write_files(tmp_path / "noop", zeros, lora_bias=bool(vectors))
    (warning,) = validate_folder(tmp_path / "noop").warnings
    assert warning.startswith("adapter_is_noop")
    if vectors:
        zeros[Q_BIAS] = arrays[Q_BIAS]
        write_files(tmp_path / "bias", zeros, lora_bias=True)
        assert validate_folder(tmp_path / "bias").warnings == ()


def test_v21_dora_with_a_zero_b_is_not_called_a_noop_since_its_magnitude_may_change_everything(tmp_path: Path) -> None:
    arrays = tensors(vectors="use_dora")
    zeros = {name: np.zeros_like(array) if "lora_B" in name else array for name, array in arrays.items()}
    write_files(tmp_path, zeros, use_dora=True)
    assert validate_folder(tmp_path).warnings == ()


def test_v21_serving_bytes_are_those_of_its_own_modules_ranks_and_vectors(tmp_path: Path) -> None:
    head, q, v = 2 * 7 * 8, 4 * (32 + 32), 4 * (32 + 16)
    write_files(tmp_path / "plain")
    assert validate_folder(tmp_path / "plain").serving_bytes(4) == 128 + 2 * 4 * (q + v)
    assert head <= 128
    write_files(tmp_path / "dora", tensors(vectors="use_dora"), use_dora=True)
    assert validate_folder(tmp_path / "dora").serving_bytes(2) == 128 + 2 * (2 * (q + v) + 4 * (32 + 16))


@pytest.mark.parametrize("vectors", ["", "lora_bias", "use_dora"])
def test_v24_the_library_reads_what_we_read(vectors: str, tmp_path: Path) -> None:
    flags: dict[str, Any] = {vectors: True} if vectors else {}
    files = write_files(tmp_path, tensors(vectors=vectors), **flags)
    validate_folder(tmp_path)
    with open_files([files.weights]) as opened:
        ours = {tensor.name: (tensor.shape, tensor.dtype) for tensor in read_tensors(opened, None)}
    with safe_open(files.weights, framework="numpy") as library:
        slices = {name: library.get_slice(name) for name in library.keys()}  # noqa: SIM118
        theirs = {name: (tuple(piece.get_shape()), piece.get_dtype()) for name, piece in slices.items()}
    assert ours == theirs


def test_the_configuration_of_this_table_is_a_sound_one(tmp_path: Path) -> None:
    assert validate_folder(write_files(tmp_path).config.parent).config["r"] == CONFIG["r"]
