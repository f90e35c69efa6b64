"""What a client makes of a directory before it sends anything."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.files import INDEX_FILE, shard_names
from lorikeet_adapters.folder import read_folder
from tests.support.lora_files import tensors, write_files, write_shards


def rejection(path: Path) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        read_folder(path)
    return caught.value


def test_the_two_files_are_found_and_the_others_are_listed(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "checkpoint-1").mkdir()
    folder = read_folder(tmp_path)
    assert (folder.config, folder.weights, folder.index) == (files.config, (files.weights,), None)
    assert folder.ignored == ("README.md", "checkpoint-1", "tokenizer.json")
    for file in folder.files:
        data = file.path.read_bytes()
        assert (file.name, file.bytes, file.sha256) == (file.path.name, len(data), hashlib.sha256(data).hexdigest())
    assert [file.name for file in folder.files] == ["adapter_config.json", "adapter_model.safetensors"]


def test_links_of_a_model_cache_are_followed(tmp_path: Path) -> None:
    files = write_files(tmp_path / "blobs")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in (files.config, files.weights):
        (snapshot / path.name).symlink_to(path)
    assert len(read_folder(snapshot).files) == 2


def test_what_is_no_adapter_directory_is_an_invalid_file_set(tmp_path: Path) -> None:
    files = write_files(tmp_path / "one")
    assert rejection(tmp_path / "absent").code == "invalid_file_set"
    assert rejection(files.weights).code == "invalid_file_set"
    files.weights.unlink()
    assert (rejection(tmp_path / "one").code, rejection(tmp_path / "one").param) == (
        "invalid_file_set",
        files.weights.name,
    )
    files = write_files(tmp_path / "two")
    files.config.unlink()
    assert (rejection(tmp_path / "two").code, rejection(tmp_path / "two").param) == (
        "invalid_file_set",
        files.config.name,
    )


def test_a18_shards_are_sent_with_their_index(tmp_path: Path) -> None:
    content = tensors()
    names = list(content)
    write_shards(tmp_path, [{name: content[name] for name in part} for part in (names[:1], names[1:])])
    (tmp_path / "adapter_model.bin").write_bytes(b"")
    folder = read_folder(tmp_path)
    sent = ["adapter_config.json", *shard_names(2), INDEX_FILE]
    assert [file.name for file in folder.files] == sent
    assert [path.name for path in folder.weights] == list(shard_names(2))
    assert folder.index == tmp_path / INDEX_FILE
    assert folder.ignored == ("adapter_model.bin",)
    (tmp_path / INDEX_FILE).write_text("{}")
    assert rejection(tmp_path).code == "shard_index_invalid"


@pytest.mark.parametrize("name", [shard_names(2)[0], INDEX_FILE])
def test_v1_a_file_set_that_says_two_things_is_refused(name: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / name).write_bytes(b"")
    assert rejection(tmp_path).code == "invalid_file_set"


def test_a17_a_pickle_is_refused_unopened_with_a_way_to_convert_it(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    files.weights.rename(tmp_path / "adapter_model.bin")
    (tmp_path / "adapter_model.bin").chmod(0)
    error = rejection(tmp_path)
    assert (error.code, error.param) == ("unsupported_format", "adapter_model.bin")
    assert "lorikeet adapters convert" in error.message


def test_the_cheap_checks_give_the_servers_codes(tmp_path: Path) -> None:
    assert rejection(write_files(tmp_path / "a", use_qalora=True).config.parent).param == "use_qalora"
    assert rejection(write_files(tmp_path / "b", b"PK\x03\x04" + bytes(40)).config.parent).code == "unsupported_format"
    assert rejection(write_files(tmp_path / "c", config=b"{").config.parent).code == "config_invalid"


def test_reading_a_folder_loads_neither_numpy_nor_torch_and_validating_no_torch() -> None:
    script = (
        "import sys\n"
        "import lorikeet_adapters.folder, lorikeet_adapters.source, lorikeet_adapters.store.local\n"
        "heavy = {'numpy', 'torch', 'peft', 'transformers', 'safetensors'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import lorikeet_adapters.validate, lorikeet_adapters.digest\n"
        "assert heavy & set(sys.modules) == {'numpy'}, heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
