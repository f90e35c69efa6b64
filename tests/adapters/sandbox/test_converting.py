"""A pickled adapter becomes safetensors or nothing, and what it would run never runs (A17)."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.folder import read_folder
from lorikeet_adapters.sandbox.confinement.limits import JailLimits
from lorikeet_adapters.sandbox.converting import LIMITS, convert_pickle
from lorikeet_adapters.sandbox.jail import JailBroken
from tests.support.lora_files import tensors, write_files

pytestmark = pytest.mark.slow  # every test starts torch
SHORT = JailLimits(memory_bytes=LIMITS.memory_bytes, wall_s=60.0)


class Reducer:
    """Unpickled by pickle itself, it makes the marker file."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._marker}",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter's folder without weights."""
    files = write_files(tmp_path / "pickled")
    files.weights.unlink()
    return files.config.parent


def state(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array).to(dtype) for name, array in tensors().items()}


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt"])
@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_come_out_as_they_went_in(folder: Path, tmp_path: Path, name: str, is_zip: bool) -> None:
    saved = state(torch.bfloat16)
    torch.save(saved, folder / name, _use_new_zipfile_serialization=is_zip)
    assert convert_pickle(folder, tmp_path / "out", limits=SHORT) == len(saved)
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert found.keys() == saved.keys()
    for key, tensor in saved.items():
        assert torch.equal(found[key], tensor)
    assert {file.name for file in read_folder(tmp_path / "out").files} == {
        "adapter_config.json", "adapter_model.safetensors",
    }  # fmt: skip


def test_tensors_that_share_memory_or_are_transposed_get_their_own(folder: Path, tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    torch.save({"a": whole, "b": whole[1:], "c": whole.T, "p": torch.nn.Parameter(whole)}, folder / "adapter_model.bin")
    convert_pickle(folder, tmp_path / "out", limits=SHORT)
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert torch.equal(found["b"], whole[1:])
    assert torch.equal(found["c"], whole.T)


@pytest.mark.parametrize("form", ["torch zip", "torch legacy", "plain pickle", "zip with a script"])
def test_a17_a_reducer_is_refused_and_its_marker_never_appears(folder: Path, tmp_path: Path, form: str) -> None:
    marker, target = tmp_path / "marker", folder / "adapter_model.bin"
    content = state() | {"x": Reducer(marker)}
    match form:
        case "torch zip" | "torch legacy":
            torch.save(content, target, _use_new_zipfile_serialization=form == "torch zip")
        case "plain pickle":
            target.write_bytes(pickle.dumps(content))
        case _:
            with zipfile.ZipFile(target, "w") as archive:
                archive.writestr("extra.py", f"open({str(marker)!r}, 'w')")
    with pytest.raises(AdapterRejected) as rejected:
        convert_pickle(folder, tmp_path / "out", limits=SHORT)
    assert rejected.value.code == "unsupported_format"
    if form.startswith("torch"):
        assert "system" in rejected.value.message
    assert not marker.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [{}, [1], {"a": 1}, {1: torch.zeros(2)}, {"a": torch.zeros(2).to_sparse()}])
def test_anything_but_tensors_by_name_is_refused(folder: Path, tmp_path: Path, content: object) -> None:
    torch.save(content, folder / "adapter_model.bin")
    with pytest.raises(AdapterRejected, match="dictionary of tensors"):
        convert_pickle(folder, tmp_path / "out", limits=SHORT)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x80\x02}", b"no pickle at all"])
def test_a18_what_is_no_pickle_is_refused(folder: Path, tmp_path: Path, data: bytes) -> None:
    (folder / "adapter_model.bin").write_bytes(data)
    with pytest.raises(AdapterRejected) as rejected:
        convert_pickle(folder, tmp_path / "out", limits=SHORT)
    assert rejected.value.code == "unsupported_format"


def test_a_reader_that_breaks_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    torch.save(state(), folder / "adapter_model.bin")
    with pytest.raises(JailBroken):
        convert_pickle(folder, tmp_path / "out", limits=JailLimits(memory_bytes=LIMITS.memory_bytes, answer_bytes=20))
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    torch.save(state(), folder / "adapter_model.bin")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(FileExistsError):
        convert_pickle(folder, tmp_path / "out", limits=SHORT)
    assert (tmp_path / "out" / "mine").exists()


@pytest.mark.parametrize("present", [(), ("adapter_model.bin", "adapter_model.pt")])
def test_there_must_be_one_pickle(folder: Path, tmp_path: Path, present: tuple[str, ...]) -> None:
    for name in present:
        (folder / name).touch()
    with pytest.raises(AdapterRejected) as rejected:
        convert_pickle(folder, tmp_path / "out", limits=SHORT)
    assert rejected.value.code == "invalid_file_set"
