"""What is measured of an adapter: PEFT's own is found equal, and each way of being wrong is found out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lorikeet_adapters.errors import AdapterImageDamaged, AdapterRejected
from lorikeet_adapters.manifest import GRAIN
from lorikeet_engine.certification.compared.neighbour import neighbour_extent, neighbour_rank
from lorikeet_engine.certification.compared.own_model import Line, OwnModel
from lorikeet_engine.certification.measured import Measured, disturbances, failures
from lorikeet_engine.certification.measuring import Measurer
from lorikeet_engine.certification.room import WORKSPACE_BYTES
from lorikeet_engine.ops.cpu import CpuOps
from tests.engine.certification.conftest import Made, Make
from tests.support.tiny_models import CONFIGS, load_oracle, oracle_logits, save_model

ONCE = WORKSPACE_BYTES + 400_000  # the tiny model takes 314 kB in float32
NEVER = WORKSPACE_BYTES + 300_000
KINDS: dict[str, dict[str, Any]] = {
    "two modules": {},
    "all linears": {"target_modules": "all-linear", "r": 16},
    "an expression": {"target_modules": r".*\.1\..*(k_proj|down_proj)$"},
    "patterns": {"rank_pattern": {r"0\..*q_proj": 7}, "alpha_pattern": {"v_proj": 3}, "use_rslora": True},
    "lora_bias": {"lora_bias": True},
    "dora": {"use_dora": True, "target_modules": ["q_proj", "o_proj", "up_proj"]},
    "the neighbour's rank": {"r": 5},
    "orthogonal": {"init_lora_weights": "orthogonal"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a10_what_peft_saves_is_found_equal_to_peft(measurer: Measurer, make: Make, kind: str) -> None:
    measured = measurer.measure(**make(**KINDS[kind]).given)
    assert failures(measured) + disturbances(measured) == ()
    assert measured.oracle == "peft"
    assert measured.max_logit_difference is not None
    assert measured.logit_scale is not None
    assert measured.max_logit_difference <= 2e-5 * measured.logit_scale
    assert measured.greedy_agreement == 1.0
    assert measured.effect > 0.01
    assert measured.neighbours_unchanged
    assert measured.neighbour_max_logit_difference <= 2e-5
    assert (measured.n_probes, measured.n_tokens) == (4, 32)


def test_an_adapter_of_zeros_has_no_effect(measurer: Measurer, make: Make) -> None:
    measured = measurer.measure(**make(strength=0.0).given)
    assert measured.effect < 1e-5
    assert failures(measured) + disturbances(measured) == ()


def test_the_base_model_is_the_same_after_every_adapter(measurer: Measurer, make: Make) -> None:
    first, other = make(use_dora=True), make(target_modules="all-linear", lora_bias=True, seed=3)
    before = measurer.measure(**first.given)
    assert measurer.measure(**other.given).effect != before.effect
    assert measurer.measure(**first.given) == before


@pytest.mark.parametrize(
    "prefix", ["base_model.model.layers.", "model.layers.", "base_model.model.language_model.model.layers."]
)
def test_a13_other_spellings_of_names_and_shards_are_compared_like_any(
    measurer: Measurer, make: Make, normalised: Callable[[Path], Made], tmp_path: Path, prefix: str
) -> None:
    plain = make(use_dora=True)
    state = load_file(plain.folder / "adapter_model.safetensors")
    spelt = {name.replace("base_model.model.model.layers.", prefix): tensor for name, tensor in state.items()}
    folder = tmp_path / "spelt"
    folder.mkdir()
    (folder / "adapter_config.json").write_bytes((plain.folder / "adapter_config.json").read_bytes())
    names = sorted(spelt)
    shards = {
        "adapter_model-00001-of-00002.safetensors": names[::2],
        "adapter_model-00002-of-00002.safetensors": names[1::2],
    }
    for shard, members in shards.items():
        save_file({name: spelt[name] for name in members}, folder / shard)
    index = {"metadata": {}, "weight_map": {name: shard for shard, members in shards.items() for name in members}}
    (folder / "adapter_model.safetensors.index.json").write_text(json.dumps(index))
    made = normalised(folder)
    assert made.digest == plain.digest
    assert measurer.measure(**made.given) == measurer.measure(**plain.given)


@pytest.mark.parametrize(
    "field", [{"lora_alpha": 9}, {"use_rslora": True}, {"alpha_pattern": {"1.self_attn.v_proj": 9}}]
)
def test_a11_a_scale_that_is_not_pefts_is_found_out(measurer: Measurer, make: Make, field: dict[str, Any]) -> None:
    made = make()
    config = made.folder / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | field))
    measured = measurer.measure(**made.given)
    assert any("differ from PEFT's" in reason for reason in failures(measured))


class LeakyOps(CpuOps):
    """Adds an adapter's delta to the rows of others, too, where there are any."""

    def add_lora(self, *, batch: Any, **given: Any) -> None:
        runs = tuple(replace(run, first_token=0, n_tokens=len(given["out"])) for run in batch.runs[:1])
        super().add_lora(batch=replace(batch, runs=runs), **given)


def test_v22_a_neighbour_that_notices_the_adapter_is_found_out(
    measurer: Measurer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    measurer.measure(**made.given)  # what neighbours answer alone is known from now on
    monkeypatch.setattr(measurer._own, "_ops", LeakyOps())
    measured = measurer.measure(**made.given)
    assert any("neighbours' logits" in reason for reason in disturbances(measured))


def test_without_room_for_peft_nothing_is_said_of_it(model_dir: Path, make: Make) -> None:
    measured = Measurer(model_dir, "tiny", max_rank=64, memory_bytes=ONCE).measure(**make().given)
    assert measured.oracle == "reference_ops"
    assert (measured.max_logit_difference, measured.logit_scale, measured.greedy_agreement) == (None, None, None)
    assert measured.effect > 0.01
    assert failures(measured) + disturbances(measured) == ()


@pytest.mark.parametrize("kind", ["two modules", "dora"])
def test_a_model_that_does_not_fit_once_is_read_from_its_files_and_measured_the_same(
    model_dir: Path, measurer: Measurer, make: Make, kind: str
) -> None:
    made = make(**KINDS[kind])
    streamed = Measurer(model_dir, "tiny", max_rank=64, memory_bytes=NEVER).measure(**made.given)
    held = measurer.measure(**made.given)
    assert (streamed.oracle, streamed.n_tokens, streamed.neighbours_unchanged) == ("reference_ops", 4, True)
    assert streamed.effect == pytest.approx(held.effect, rel=1e-4)
    assert failures(streamed) + disturbances(streamed) == ()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_reads_from_its_files(name: str, tmp_path: Path) -> None:
    directory, prompt = save_model(name, tmp_path / name, max_shard_size="50KB"), tuple(range(5, 25))
    held, streamed = (OwnModel(directory, "tiny", is_streamed=flag) for flag in (False, True))
    expected, found = (own.trace([Line(prompt)], 2, own.arena())[0] for own in (held, streamed))
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-5, atol=1e-4)


def test_logits_that_are_not_finite_are_refused(
    measurer: Measurer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = measurer._own.trace

    def trace(lines: Any, n_tokens: int, arena: Any) -> Any:
        first, *others = honest(lines, n_tokens, arena)
        return [replace(first, logits=first.logits + math.inf), *others]

    made = make()
    monkeypatch.setattr(measurer._own, "trace", trace)
    with pytest.raises(AdapterRejected) as rejected:
        measurer.measure(**made.given)
    assert rejected.value.code == "certificate_failed"
    assert "not finite" in rejected.value.message


def test_pefts_logits_that_are_no_numbers_are_not_found_equal(
    measurer: Measurer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measurer._oracle is not None
    honest = measurer._oracle.logits

    def logits(folder: Path, texts: Any) -> list[torch.Tensor]:
        first, second, *others = honest(folder, texts)
        return [first, second * math.nan, *others]

    monkeypatch.setattr(measurer._oracle, "logits", logits)
    with pytest.raises(AdapterRejected, match="not finite") as rejected:
        measurer.measure(**make().given)
    assert rejected.value.code == "certificate_failed"


def test_a18_an_adapter_of_another_base_model_is_refused(measurer: Measurer, foreign: Made) -> None:
    with pytest.raises(AdapterRejected) as rejected:
        measurer.measure(**foreign.given)
    assert rejected.value.code == "base_model_mismatch"


def test_an_adapter_whose_logits_are_all_equal_is_measured(measurer: Measurer, make: Make) -> None:
    """Its numbers are so large that the last norm, a division by them, leaves nothing."""
    made = make(r=64, lora_alpha=64, target_modules="all-linear", filled_with=65_000.0)
    measured = measurer.measure(**made.given)
    assert measured.logit_scale == 0.0
    assert measured.neighbour_max_logit_difference < 1e-4


def test_an_image_of_another_digest_is_damaged(measurer: Measurer, make: Make) -> None:
    with pytest.raises(AdapterImageDamaged):
        measurer.measure(**make().given | {"digest": "0" * 64})


def test_our_logits_at_every_position_are_those_of_transformers(model_dir: Path) -> None:
    own, prompt = OwnModel(model_dir, "tiny"), tuple(range(5, 45))
    trace, other = own.trace([Line(prompt), Line((7,))], 4, own.arena())
    expected = oracle_logits(load_oracle(model_dir), [*prompt, *trace.tokens[:-1]])
    torch.testing.assert_close(trace.logits, expected, rtol=1e-5, atol=1e-4)
    assert trace.tokens == trace.chosen == tuple(expected[-4:].argmax(dim=1).tolist())
    assert len(other.logits) == 4
    forced = own.trace([Line(prompt, forced=(1, 2, 3, 4))], 4, own.arena())[0]
    assert forced.tokens == (1, 2, 3, 4)
    assert forced.chosen[0] == trace.tokens[0]


def test_the_neighbour_is_always_the_same_and_of_another_rank(measurer: Measurer) -> None:
    one, same = (neighbour_extent(measurer.table, 5) for _ in range(2))
    assert torch.equal(one, same)
    assert one.numel() % GRAIN == 0
    assert [neighbour_rank(rank, 64) for rank in (1, 5, 16)] == [5, 3, 5]
    assert [neighbour_rank(rank, 1) for rank in (1, 4)] == [1, 1]


SOUND = Measured(
    base_model_digest="0" * 64,
    effect=0.5,
    oracle="peft",
    max_logit_difference=1e-3,
    logit_scale=20.0,
    greedy_agreement=1.0,
    own_max_logit_difference=1e-5,
    own_unchanged=True,
    neighbour_max_logit_difference=1e-5,
    neighbours_unchanged=True,
    n_probes=4,
    n_tokens=32,
    warnings=("a warning",),
)


def test_what_fails_a_certificate() -> None:
    assert failures(SOUND) + disturbances(SOUND) == ()
    assert len(failures(replace(SOUND, max_logit_difference=2.1e-3))) == 1
    beside = replace(SOUND, neighbour_max_logit_difference=1.1e-4, neighbours_unchanged=False)
    assert (len(disturbances(beside)), failures(beside)) == (2, ())
    assert failures(replace(SOUND, oracle="reference_ops", max_logit_difference=None, logit_scale=None)) == ()


def test_an_adapter_that_answers_otherwise_in_company_is_told_from_its_neighbours() -> None:
    (sentence,) = disturbances(replace(SOUND, own_max_logit_difference=1.1e-4))
    assert sentence.startswith("its own logits")
    assert disturbances(replace(SOUND, own_unchanged=False)) == ("its own tokens in a mixed batch are not those alone",)
    (sentence,) = disturbances(replace(SOUND, neighbours_unchanged=False))
    assert sentence.startswith("its neighbours' tokens")


def test_a_record_crosses_a_pipe() -> None:
    assert Measured.from_record(json.loads(json.dumps(SOUND.as_record()))) == SOUND


@pytest.mark.parametrize(
    "change",
    [
        {"effect": math.inf}, {"effect": None}, {"effect": True}, {"oracle": "me"}, {"n_probes": 0}, {"n_tokens": 1.0},
        {"neighbours_unchanged": 1}, {"own_unchanged": None}, {"own_max_logit_difference": None},
        {"base_model_digest": "0"}, {"warnings": [1]}, {"warnings": "w"},
        {"oracle": "reference_ops"}, {"logit_scale": None}, {"more": 1},
    ],
)  # fmt: skip
def test_a_record_of_another_form_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="measurements"):
        Measured.from_record(SOUND.as_record() | change)
