"""Requests of several adapters and of the base model in one step, each against PEFT with its adapter alone.

Tolerance as in test_model_equality: 1e-5 of the norm, float32 on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_adapters.image import AdapterImage
from lorikeet_engine.execution.runner import ModelRunner
from tests.support.closeness import relative_error
from tests.support.device import BASE, Driven, open_linears, open_runner, plan_of, random_ids
from tests.support.ops_cases import BACKENDS
from tests.support.tiny_models import (
    VOCAB,
    load_adapted_oracle,
    load_oracle,
    oracle_logits,
    pack_adapter,
    save_adapter,
)

TOLERANCE = 1e-5
ALONE_TOLERANCE = 1e-4  # of a logit
ADAPTERS: dict[str, dict[str, Any]] = {
    "all_r8": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "qv_r3": {"r": 3, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj"]},
    "mlp_r32_rs": {"r": 32, "lora_alpha": 8, "use_rslora": True, "target_modules": ["up_proj", "down_proj"]},
    "one_layer": {"r": 16, "lora_alpha": 16, "target_modules": ["k_proj", "o_proj"], "layers_to_transform": [1]},
    "patterns": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "gate_proj"],
        "rank_pattern": {"layers.0.self_attn.q_proj": 9},
        "alpha_pattern": {"gate_proj": 1},
    },
    "biased": {"r": 5, "lora_alpha": 10, "lora_bias": True, "target_modules": ["k_proj", "o_proj", "up_proj"]},
    "dora": {"r": 6, "use_dora": True, "target_modules": "all-linear"},
}
PLACES = {name: 3 + 4000 * index for index, name in enumerate(ADAPTERS)}


@dataclass
class Adapted:
    """One model, its adapters packed, and the oracles."""

    directory: Path
    images: dict[str, AdapterImage]
    oracles: dict[str, Any]
    backend: str

    def runner(self) -> ModelRunner:
        runner = open_runner(self.directory, adapter_pool_bytes=2 << 20, n_blocks=80, ops=BACKENDS[self.backend]())
        for name, image in self.images.items():
            runner.write_extent(PLACES[name], image)
        return runner


@pytest.fixture(
    scope="module",
    params=[(model, ops) for model in ("llama", "llama_tied_biased", "qwen3") for ops in ("cpu", "native")],
    ids=str,
)
def adapted(
    request: pytest.FixtureRequest, model_dir: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Adapted:
    model, backend = request.param
    directory = model_dir(model)
    table, linears = open_runner(directory).spec.module_table("tiny"), open_linears(directory, BACKENDS[backend]())
    images, oracles = {}, {"base": load_oracle(directory)}
    for seed, (name, options) in enumerate(ADAPTERS.items()):
        folder = save_adapter(directory, tmp_path_factory.mktemp(name), seed=seed, **options)
        images[name] = pack_adapter(folder, table, torch.float32, linears)
        oracles[name] = load_adapted_oracle(directory, folder)
    return Adapted(directory, images, oracles, backend)


def requests() -> dict[str, Driven]:
    """One request per adapter and two of the base model, of different lengths."""
    names = [*ADAPTERS, "base", "base_too"]
    return {
        name: Driven(
            name,
            random_ids(5 + 6 * i, vocab=VOCAB, seed=i),
            tuple(range(1 + 8 * i, 9 + 8 * i)),
            extent=PLACES.get(name, BASE),
        )
        for i, name in enumerate(names)
    }


def check(adapted: Adapted, runner: ModelRunner, driven: list[Driven]) -> None:
    plan = plan_of([request.row() for request in driven])
    by_name = {request.name: request for request in driven}
    for found, row in zip(runner.logits(plan), plan.rows, strict=True):
        request = by_name[row.request_id]
        oracle = adapted.oracles[request.name.removesuffix("_too")]
        expected = oracle_logits(oracle, request.tokens + request.generated)[-1]
        assert relative_error(found, expected) <= TOLERANCE, request.name


def test_prompts_and_decodes_of_all_adapters_share_a_step(adapted: Adapted) -> None:
    runner, driven = adapted.runner(), requests()
    early = [driven[name] for name in ("all_r8", "mlp_r32_rs", "dora", "base")]
    check(adapted, runner, early)
    for step in range(3):
        for request in driven.values():
            if request.computed:
                request.generated.append(10 + step)
        check(adapted, runner, list(driven.values()))


def test_in_float32_an_answer_is_the_same_alone_and_in_company(adapted: Adapted) -> None:
    """Greedy tokens are equal; logits differ by what the rows of a product beside it do to its rounding."""
    company, alone = adapted.runner(), {name: adapted.runner() for name in requests()}
    together, apart = requests(), requests()
    for _ in range(6):
        plan = plan_of([request.row() for request in together.values()])
        for found, row in zip(company.logits(plan), plan.rows, strict=True):
            single = alone[row.request_id].logits(plan_of([apart[row.request_id].row()]))[0]
            assert (found - single).abs().max() <= ALONE_TOLERANCE
            assert found.argmax() == single.argmax()
            for request in (together[row.request_id], apart[row.request_id]):
                request.generated.append(int(found.argmax()))


def test_chunks_with_an_adapter_equal_the_whole_prompt(adapted: Adapted) -> None:
    runner, driven = adapted.runner(), requests()
    late = [driven["patterns"], driven["one_layer"], driven["dora"], driven["base_too"]]
    runner.logits(plan_of([request.row(7) for request in late]))
    runner.logits(plan_of([request.row(1) for request in late]))
    check(adapted, runner, late)


@pytest.mark.parametrize("name", ["all_r8", "biased", "dora"])
def test_an_adapter_means_the_same_after_it_was_moved(adapted: Adapted, name: str) -> None:
    runner, driven = adapted.runner(), requests()
    target = PLACES[name] - 2
    runner.move_extent(PLACES[name], target, adapted.images[name].n_grains)
    driven[name].extent = target
    check(adapted, runner, list(driven.values()))


def test_a_place_reused_by_another_adapter_serves_the_new_one(adapted: Adapted) -> None:
    """The new one targets fewer modules: nothing of the old one may be left in them, nor its flags and vectors."""
    for old in ("all_r8", "dora"):
        runner, driven = adapted.runner(), requests()
        check(adapted, runner, [driven[old]])
        runner.write_extent(PLACES[old], adapted.images["qv_r3"])
        driven["qv_r3"].extent = PLACES[old]
        check(adapted, runner, [driven["qv_r3"], driven["base"]])
