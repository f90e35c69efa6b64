"""`certify` and `convert`: what a tenant learns of an adapter without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lorikeet_adapters.certificate import Certificate
from lorikeet_engine.model_spec import load_model_spec
from tests.platform.cli.conftest import Commands
from tests.support.lora_files import validate_folder, write_files
from tests.support.reading_model import save_reading_model
from tests.support.tiny_models import save_adapter


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reading_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def fitting(model: Path, tmp_path: Path) -> Path:
    """An adapter of that model."""
    return save_adapter(model, tmp_path / "fitting", r=6, lora_alpha=12, target_modules=["q_proj", "gate_proj"])


@pytest.mark.slow
def test_certify_prints_a_table_for_people_and_a_record_for_programs(
    lorikeet: Commands, model: Path, fitting: Path
) -> None:
    (fitting / "notes.txt").touch()
    table = lorikeet("adapters", "certify", fitting, "--model", model)
    assert table.code == 0, table.err
    for part in ("tiny", "6 (4 pairs)", "against PEFT", "100 % of 32 greedy tokens", "tokens unchanged", "not asked"):
        assert part in table.out
    assert "not part of the adapter: notes.txt" in table.err
    printed = lorikeet("adapters", "certify", fitting, "--model", model, "--json")
    record: dict[str, Any] = json.loads(printed.out)
    certificate = Certificate.from_record(record)
    adapter = validate_folder(fitting, load_model_spec(model).module_table("tiny"))
    assert certificate.ranks == {"6": 4}
    assert certificate.base_model == "tiny"
    assert certificate.serving_bytes in (adapter.serving_bytes(2), adapter.serving_bytes(4))
    assert certificate.served_alike is None
    assert certificate.oracle == "peft"


@pytest.mark.slow
def test_certify_names_the_rule_that_an_adapter_breaks(lorikeet: Commands, model: Path, fitting: Path) -> None:
    ended = lorikeet("adapters", "certify", fitting, "--model", model, "--max-rank", "4", "--json")
    assert ended.code == 6
    assert "rank_too_large" in ended.err
    assert json.loads(ended.out)["rejected"]["code"] == "rank_too_large"


@pytest.mark.slow
def test_certify_names_another_base_model(lorikeet: Commands, model: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "foreign")
    ended = lorikeet("adapters", "certify", tmp_path / "foreign", "--model", model)
    assert (ended.code, ended.out) == (6, "")
    assert "base_model_mismatch" in ended.err


def test_a17_certify_never_opens_a_pickle_and_says_what_does(lorikeet: Commands, tmp_path: Path) -> None:
    write_files(tmp_path / "a").weights.rename(tmp_path / "a" / "adapter_model.bin")
    ended = lorikeet("adapters", "certify", tmp_path / "a")
    assert ended.code == 6
    assert "unsupported_format" in ended.err
    assert "lorikeet adapters convert" in ended.err


@pytest.mark.slow
def test_a17_convert_warns_makes_safetensors_and_says_what_comes_next(
    lorikeet: Commands, fitting: Path, tmp_path: Path
) -> None:
    weights = fitting / "adapter_model.safetensors"
    torch.save(load_file(weights), fitting / "adapter_model.bin")
    expected = weights.read_bytes()
    weights.unlink()
    ended = lorikeet("adapters", "convert", fitting, tmp_path / "converted")
    assert ended.code == 0, ended.err
    assert "author you trust" in ended.err
    assert f"lorikeet adapters certify {tmp_path / 'converted'}" in ended.err
    assert (tmp_path / "converted" / weights.name).read_bytes() == expected
    again = lorikeet("adapters", "convert", fitting, tmp_path / "converted")
    assert (again.code, "File exists" in again.err) == (5, True)


@pytest.mark.slow
def test_convert_leaves_nothing_when_the_result_is_no_adapter(
    lorikeet: Commands, fitting: Path, tmp_path: Path
) -> None:
    weights = fitting / "adapter_model.safetensors"
    state = {name: tensor.to(torch.int32) for name, tensor in load_file(weights).items()}
    torch.save(state, fitting / "adapter_model.bin")
    weights.unlink()
    ended = lorikeet("adapters", "convert", fitting, tmp_path / "converted")
    assert ended.code == 6, ended.err
    assert not (tmp_path / "converted").exists()


def test_convert_says_when_there_is_nothing_to_convert(lorikeet: Commands, adapter: Path, tmp_path: Path) -> None:
    ended = lorikeet("adapters", "convert", adapter, tmp_path / "out")
    assert ended.code == 6
    assert "adapter_model.bin" in ended.err
    assert not (tmp_path / "out").exists()
