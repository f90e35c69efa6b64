"""A configuration is compared with the whole model, as PEFT does, and not only with the linears of its layers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lorikeet_adapters.config.patterns import limited_time
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.rules.whole_model import WholeModel
from lorikeet_adapters.sandbox.validating import validate_in_jail
from lorikeet_engine.model_spec import load_model_spec
from tests.support.lora_files import TABLE, tensors, validate_folder, write_files
from tests.support.tiny_models import CONFIGS, load_oracle, save_model

QK_NORMS = replace(TABLE, norms=("self_attn.q_norm", "self_attn.k_norm"))
NO_DEFAULT = replace(TABLE, has_default_targets=False)
# Cheap on every path of a layer, years on the name that it looks for.
SLOW = r"(?={}$)(?:.|.?|.??|.*|.*?|.+|.+?){{5,9}}X|.*\.(?:q|v)_proj"
SLOW_NAMES = ("lm_head", r"model\.embed_tokens", r"model\.norm", r"model\.rotary_emb", r"model\.layers\.1\.self_attn")


@pytest.mark.parametrize("name", SLOW_NAMES)
@pytest.mark.parametrize("field", ["target_modules", "exclude_modules", "rank_pattern", "alpha_pattern"])
def test_a19_an_expression_that_any_module_makes_slow_is_refused_in_time(
    field: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lorikeet_adapters.validate.limited_time", lambda: limited_time(0.2))
    expression = SLOW.format(name).replace("(?:q|v)_proj", "k_proj" if field == "exclude_modules" else "(?:q|v)_proj")
    value: Any = {expression: 4} if field.endswith("_pattern") else expression
    started = time.monotonic()
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(write_files(tmp_path, **{field: value}).config.parent)
    assert caught.value.code == "pattern_not_allowed"
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("start", [False, None])
@pytest.mark.parametrize(
    "targets",
    [
        ["q_proj", "v_proj", "o_proj"],
        ["q_proj", "v_proj", "lm_head"],
        ["q_proj", "v_proj", "embed_tokens"],
        r".*(q_proj|v_proj)|lm_head",
        "all-linear",
    ],
)
def test_f1_random_numbers_in_a_module_without_tensors_are_refused(targets: Any, start: Any, tmp_path: Path) -> None:
    files = write_files(tmp_path, target_modules=targets, init_lora_weights=start)
    with pytest.raises(AdapterRejected) as caught:
        validate_folder(files.config.parent)
    assert (caught.value.code, caught.value.param) == ("target_mismatch", "target_modules")
    assert "init_lora_weights: false" in caught.value.message


@pytest.mark.parametrize("start", [True, False, None])
@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], None, r".*\.(q|v)_proj"])
def test_f1_when_all_targets_have_tensors_nothing_depends_on_how_they_begin(
    targets: Any, start: Any, tmp_path: Path
) -> None:
    files = write_files(tmp_path, target_modules=targets, init_lora_weights=start)
    assert validate_folder(files.config.parent).warnings == ()


def test_a15_the_embedding_and_the_output_layer_are_named_in_the_warning(tmp_path: Path) -> None:
    prefix = "base_model.model.language_model.model."
    targets = ["q_proj", "v_proj", "lm_head", "embed_tokens"]
    files = write_files(tmp_path, tensors(prefix=prefix), target_modules=targets)
    (warning,) = validate_folder(files.config.parent).warnings
    assert "'language_model.lm_head', 'language_model.model.embed_tokens'" in warning
    assert warning.count("lm_head") == 1


@pytest.mark.parametrize("targets", [r".*self_attn\..*", ["q_proj", "v_proj", "q_norm"], r".*\.(q_proj|v_proj|k_norm)"])
def test_a15_norms_of_queries_and_keys_cannot_be_targeted_where_a_model_has_them(targets: Any, tmp_path: Path) -> None:
    folder = write_files(tmp_path, target_modules=targets).config.parent
    validate_folder(folder)
    with pytest.raises(AdapterRejected, match=r"_norm' as well") as caught:
        validate_folder(folder, QK_NORMS)
    assert (caught.value.code, caught.value.param) == ("target_mismatch", "target_modules")


def test_a15_no_targets_are_refused_by_name_for_a_family_that_peft_has_no_default_for(tmp_path: Path) -> None:
    folder = write_files(tmp_path, target_modules=None).config.parent
    validate_folder(folder)
    with pytest.raises(AdapterRejected, match="no default") as caught:
        validate_folder(folder, NO_DEFAULT)
    assert (caught.value.code, caught.value.param) == ("target_mismatch", "target_modules")
    assert validate_folder(write_files(tmp_path / "named").config.parent, NO_DEFAULT).warnings == ()


@pytest.mark.slow
def test_the_jail_knows_of_a_family_what_the_model_says(tmp_path: Path) -> None:
    for number, (table, targets) in enumerate(((QK_NORMS, ["q_proj", "v_proj", "q_norm"]), (NO_DEFAULT, None))):
        folder = write_files(tmp_path / str(number), target_modules=targets).config.parent
        files = {path.name: path for path in folder.iterdir()}
        with pytest.raises(AdapterRejected) as caught:
            validate_in_jail(files, table=table, max_rank=8, image=tmp_path / "image")
        assert caught.value.code == "target_mismatch"


@pytest.mark.parametrize("name", ["llama", "mistral_full", "qwen2", "qwen3", "smollm3"])
def test_every_module_of_a_family_is_known_by_its_name(name: str, tmp_path: Path) -> None:
    assert name in CONFIGS
    directory = save_model(name, tmp_path)
    model = WholeModel("model.", load_model_spec(directory).module_table("tiny"))
    known = {"", model.head, model.embedding, *model.linears(), *model.others()}
    assert {path for path, _ in load_oracle(directory).named_modules()} == known
    assert [model.author_name(path) for path in sorted(known)] == sorted(known)


def test_a_models_own_names_are_found_under_another_prefix() -> None:
    for prefix, head, layers in (
        ("", "lm_head", "layers.1.mlp"),
        ("language_model.model.", "language_model.lm_head", "language_model.model.layers.1.mlp"),
        ("model.language_model.", "lm_head", "model.language_model.layers.1.mlp"),
    ):
        model = WholeModel(prefix, TABLE)
        served = ("", "model", "lm_head", "model.layers.1.mlp")
        assert [model.author_name(name) for name in served] == ["", prefix.removesuffix("."), head, layers]
