"""The jailed validator gives the answers of the validator, and nothing a child says is taken on trust."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.modules import MODULES, Linear, ModuleTable
from lorikeet_adapters.sandbox import validating
from lorikeet_adapters.sandbox.confinement.limits import JailLimits
from lorikeet_adapters.sandbox.jail import JailBroken
from lorikeet_adapters.sandbox.record import BadAnswer, ValidatedRecord, record_of
from lorikeet_adapters.sandbox.validating import validate_in_jail
from lorikeet_adapters.validate import validate_adapter
from tests.support.lora_files import (
    TABLE,
    AdapterFiles,
    tensor_name,
    tensors,
    validate_folder,
    with_header,
    write_files,
)

SMALL = JailLimits(memory_bytes=280 << 20)


def named(files: AdapterFiles) -> dict[str, Path]:
    return {files.config.name: files.config, files.weights.name: files.weights}


def test_it_says_what_the_validator_says_and_writes_the_same_file(tmp_path: Path) -> None:
    files = write_files(tmp_path / "a")
    record = validate_in_jail(named(files), table=TABLE, max_rank=64, image=tmp_path / "image")
    adapter = validate_adapter(config=files.config, weights=[files.weights], index=None, table=TABLE, max_rank=64)
    with (tmp_path / "expected").open("wb") as out:
        digest = write_normalised(adapter, [files.weights], out)
    assert (tmp_path / "image").read_bytes() == (tmp_path / "expected").read_bytes()
    assert record == ValidatedRecord(
        digest=digest,
        rank_max=adapter.rank_max,
        n_layers=2,
        modules={"self_attn.q_proj": 2, "self_attn.v_proj": 2},
        ranks={"4": 4},
        dtype="float32",
        tensor_count=8,
        target_modules=adapter.target_modules,
        config=adapter.config,
        warnings=adapter.warnings,
        n_grains=record.n_grains,
    )
    assert [record.serving_bytes(size) for size in (2, 4)] == [adapter.serving_bytes(size) for size in (2, 4)]


def test_a_refusal_is_that_of_the_validator(tmp_path: Path) -> None:
    broken = {name: np.full_like(array, np.nan) for name, array in tensors().items()}
    files = write_files(tmp_path / "a", broken)
    with pytest.raises(AdapterRejected) as expected:
        validate_adapter(config=files.config, weights=[files.weights], index=None, table=TABLE, max_rank=64)
    with pytest.raises(AdapterRejected) as found:
        validate_in_jail(named(files), table=TABLE, max_rank=64, image=tmp_path / "image")
    for name in ("code", "message", "param"):
        assert getattr(found.value, name) == getattr(expected.value, name)
    assert not (tmp_path / "image").exists()


def test_a18_files_that_are_no_adapter_by_name_are_refused_before_a_child_starts(tmp_path: Path) -> None:
    with pytest.raises(AdapterRejected) as rejected:
        validate_in_jail({"adapter_config.json": tmp_path}, table=TABLE, max_rank=64, image=tmp_path / "image")
    assert rejected.value.code == "invalid_file_set"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """600 MB of weights, in a child whose whole address space, libraries included, is smaller than half of that."""
    width, rank, n_layers = 38_400, 64, 30
    table = ModuleTable("wide", n_layers, {module: Linear(width, width) for module in MODULES})
    entries, end = {}, 0
    for layer in range(n_layers):
        for side, shape in (("A", [rank, width]), ("B", [width, rank])):
            offsets = [end, end + 4 * rank * width]
            name = tensor_name(layer, "self_attn.q_proj", side)
            entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
            end = offsets[1]
    header = with_header(json.dumps(entries).encode())
    files = write_files(tmp_path / "a", header, r=rank, target_modules=["q_proj"])
    os.truncate(files.weights, len(header) + end)  # zeros, which take no room on the disk
    assert files.weights.stat().st_size > 2 * SMALL.memory_bytes
    record = validate_in_jail(named(files), table=table, max_rank=64, image=tmp_path / "image", limits=SMALL)
    assert record.warnings[0].startswith("adapter_is_noop")
    with (tmp_path / "image").open("rb") as image:
        assert hashlib.file_digest(image, "sha256").hexdigest() == record.digest


def test_an_adapter_in_as_many_shards_as_there_may_be_fits_through_the_jails_descriptors(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    weight_map: dict[str, str] = {}
    paths = named(write_files(folder))
    paths.pop("adapter_model.safetensors").unlink()
    table = ModuleTable("tiny-llama", 64, TABLE.linears)
    for layer in range(64):
        name = f"adapter_model-{layer + 1:05}-of-00064.safetensors"
        content = tensors(layers=(layer,))
        paths[name] = write_files(tmp_path / str(layer), content).weights
        weight_map |= dict.fromkeys(content, name)
    index = folder / "adapter_model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    paths[index.name] = index
    record = validate_in_jail(paths, table=table, max_rank=64, image=tmp_path / "image")
    assert (record.tensor_count, record.modules["self_attn.q_proj"]) == (256, 64)


GOOD: dict[str, Any] = {
    "digest": "0" * 64,
    "rank_max": 4,
    "modules": {"self_attn.q_proj": 2},
    "ranks": {"4": 2},
    "dtype": "float32",
    "tensor_count": 4,
    "target_modules": ["self_attn.q_proj"],
    "config": {},
    "warnings": [],
    "n_grains": {"2": 60, "4": 58},
}


def test_the_form_of_an_answer() -> None:
    assert record_of(GOOD, table=TABLE, max_rank=64).rank_max == 4


def test_the_record_of_any_configuration_has_that_form(tmp_path: Path) -> None:
    files = write_files(
        tmp_path,
        base_model_name_or_path="\x1b[2J\n" * 100,
        target_modules=["q_proj", "v_proj", "\u202e", "\x00"],
        layers_to_transform=[0, 1, 1 << 60, -(1 << 60), *range(2, 500)],
        rank_pattern={"\x07" * 200: 4, "q_proj": 4, "x" * 256: 4},
        alpha_pattern={"\t": 8, **{f"m{n}": 0.5 for n in range(500)}},
        exclude_modules="\v" * 256,
    )
    config = json.loads(json.dumps(validate_folder(files.config.parent).config))
    assert record_of({**GOOD, "config": config}, table=TABLE, max_rank=64).config == config


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "0" * 63}, {"digest": "X" * 64}, {"digest": 5}, {"rank_max": 5}, {"rank_max": True},
        {"rank_max": 65}, {"modules": {"self_attn.q_proj": 3}}, {"modules": {"lm_head": 2}}, {"modules": []},
        {"ranks": {"04": 2}}, {"ranks": {"4": 3}}, {"ranks": {"65": 2}}, {"ranks": {}}, {"dtype": "int8"},
        {"tensor_count": -1}, {"tensor_count": 1.5}, {"target_modules": ["self_attn.k_proj"]}, {"target_modules": "q"},
        {"config": None}, {"config": []}, {"config": {"r": float("nan")}}, {"config": {"r": 1 << 60}},
        {"config": {"r": {"a": {"b": 1}}}}, {"config": {"r": [[1]]}}, {"config": {"a\x00": 1}},
        {"config": {"a": "\x1b["}}, {"config": {"a": "x" * 513}}, {"config": {"x" * 513: 1}},
        {"config": {"a": ["b", "\n"]}}, {"config": {5: 1}},
        {"config": {"a": [1] * 257}}, {"config": {str(n): 1 for n in range(257)}}, {"config": {"a": {"\u202e": 1}}},
        {"warnings": "none"}, {"warnings": [1]}, {"warnings": ["w"] * 65}, {"n_grains": {"2": 60}},
        {"n_grains": {"2": 60, "4": 0}}, {"n_grains": {"2": 60, "4": 1 << 40}}, {"more": 1},
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        record_of({**GOOD, **change}, table=TABLE, max_rank=64)


def test_a_digest_that_is_not_that_of_the_bytes_is_a_broken_jail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar = f"""
import json
from lorikeet_adapters.sandbox.child import run_child
def work(task):
    task.out.write(b"other bytes")
    return json.loads({json.dumps(json.dumps(GOOD))})
run_child(work)
"""
    monkeypatch.setattr(validating, "VALIDATOR", ("-c", liar))
    with pytest.raises(JailBroken, match="digest"):
        validate_in_jail(named(write_files(tmp_path / "a")), table=TABLE, max_rank=64, image=tmp_path / "image")
    assert not (tmp_path / "image").exists()
