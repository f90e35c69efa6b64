"""Weights in several files: every tensor in exactly the file the index says, no more and no less (A18)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import save_torch_state_dict
from torch import from_numpy

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.files import INDEX_FILE, shard_names, weight_files
from tests.support.lora_files import normalise_folder, tensors, validate_folder, write_files, write_shards

Arrays = dict[str, np.ndarray[Any, Any]]
FIRST, SECOND = shard_names(2)


def halves() -> tuple[Arrays, Arrays]:
    content = tensors()
    names = list(content)
    return {name: content[name] for name in names[:3]}, {name: content[name] for name in names[3:]}


def good_index() -> dict[str, Any]:
    one, two = halves()
    return {"metadata": {}, "weight_map": {**dict.fromkeys(one, FIRST), **dict.fromkeys(two, SECOND)}}


def rejection(folder: Path) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(folder)
    return caught.value


def test_a18_shards_as_the_hub_library_writes_them_are_one_adapter(tmp_path: Path) -> None:
    plain, spread = tmp_path / "plain", tmp_path / "spread"
    write_files(plain)
    write_files(spread).weights.unlink()
    save_torch_state_dict(
        {name: from_numpy(array) for name, array in tensors().items()},
        spread,
        filename_pattern="adapter_model{suffix}.safetensors",
        max_shard_size=1024,
    )
    assert len(list(spread.glob("adapter_model-*"))) > 2
    assert normalise_folder(spread)[1:] == normalise_folder(plain)[1:]


def test_a_pair_may_lie_in_two_files(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, halves())
    adapter = validate_folder(folder)
    assert {tensor.file for delta in adapter.deltas for tensor in (delta.a, delta.b)} == {0, 1}
    assert any(delta.a.file != delta.b.file for delta in adapter.deltas)
    assert adapter.tensor_count == 8


MISSING = next(iter(halves()[0]))
EXTRA = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"


def moved(index: dict[str, Any]) -> None:
    index["weight_map"][MISSING] = SECOND


def left_out(index: dict[str, Any]) -> None:
    del index["weight_map"][MISSING]


def added(index: dict[str, Any]) -> None:
    index["weight_map"][EXTRA] = FIRST


def escaping(index: dict[str, Any]) -> None:
    index["weight_map"][MISSING] = "../../etc/passwd"


def no_text(index: dict[str, Any]) -> None:
    index["weight_map"][MISSING] = ["a"]


def no_map(index: dict[str, Any]) -> None:
    del index["weight_map"]


def more_members(index: dict[str, Any]) -> None:
    index["tensors"] = {}


def other_metadata(index: dict[str, Any]) -> None:
    index["metadata"] = []


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (moved, MISSING),
        (left_out, MISSING),
        (added, EXTRA),
        (escaping, MISSING),
        (no_text, MISSING),
        (no_map, INDEX_FILE),
        (more_members, INDEX_FILE),
        (other_metadata, INDEX_FILE),
    ],
)
def test_a18_an_index_that_does_not_agree_with_the_files_is_refused(
    change: Callable[[dict[str, Any]], None], subject: str, tmp_path: Path
) -> None:
    index = good_index()
    change(index)
    error = rejection(write_shards(tmp_path, halves(), index))
    assert (error.code, error.param) == ("shard_index_invalid", subject)


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"weight_map": {"a": "b", "a": "c"}}',
        b'{"weight_map": NaN}',
        b'{"weight_map": {"a": [[[[]]]]}}',
        b'{"weight_map": {}}',
        b'{"weight_map": {' + b'"a":1,' * 20_000 + b'"b": 1}}',
    ],
)
def test_an_index_is_strict_json_of_bounded_size(index: bytes, tmp_path: Path) -> None:
    error = rejection(write_shards(tmp_path, halves(), index))
    assert (error.code, error.param) == ("shard_index_invalid", INDEX_FILE)


def test_an_index_beyond_four_mebibytes_is_refused_unread(tmp_path: Path) -> None:
    error = rejection(write_shards(tmp_path, halves(), b" " * ((4 << 20) + 1)))
    assert (error.code, error.param) == ("adapter_too_large", INDEX_FILE)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    one, two = halves()
    two[MISSING] = one[MISSING]
    error = rejection(write_shards(tmp_path, (one, two), good_index()))
    assert (error.code, error.param) == ("shard_index_invalid", MISSING)
    assert FIRST in error.message
    assert SECOND in error.message


def test_what_is_wrong_in_a_shard_names_the_shard(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, halves())
    (folder / SECOND).write_bytes((folder / SECOND).read_bytes()[:-1])
    error = rejection(folder)
    assert (error.code, error.param) == ("size_mismatch", SECOND)


def test_shards_are_checked_like_one_file(tmp_path: Path) -> None:
    one, two = halves()
    name = next(iter(two))
    two[name][0, 0] = np.nan
    error = rejection(write_shards(tmp_path, (one, two)))
    assert (error.code, error.param) == ("non_finite_weights", name)


@pytest.mark.parametrize(
    "names",
    [
        {FIRST, INDEX_FILE},
        {SECOND, INDEX_FILE},
        {FIRST, SECOND},
        {INDEX_FILE},
        {FIRST, SECOND, INDEX_FILE, "adapter_model.safetensors"},
        {"adapter_model-00000-of-00001.safetensors", INDEX_FILE},
        {*shard_names(65), INDEX_FILE},
    ],
)
def test_v1_shards_come_with_all_of_them_and_an_index(names: set[str]) -> None:
    with pytest.raises(AdapterRejected) as caught:
        weight_files({"adapter_config.json", *names})
    assert caught.value.code == "invalid_file_set"
    assert weight_files({"adapter_config.json", *shard_names(64), INDEX_FILE}) == shard_names(64)


def test_the_index_may_say_how_large_it_all_is_and_nobody_listens(tmp_path: Path) -> None:
    index = good_index()
    index["metadata"] = {"total_size": -1, "note": "x"}
    assert validate_folder(write_shards(tmp_path, halves(), json.dumps(index).encode())).tensor_count == 8
