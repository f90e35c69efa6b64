"""What a divided memory carries: against weights as they are loaded, and images as they are packed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lorikeet_adapters.modules import MODULES
from lorikeet_engine.cost import adapter_bytes
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.simulation.shipped import load_model
from lorikeet_engine.sizing.capacity import BUSY_SHARE, arena_bytes, bound_of, replicas_for, weights_in_memory
from tests.support.tiny_models import save_model


@pytest.mark.parametrize("name", ["llama", "llama_tied_biased", "qwen2", "qwen3"])
def test_weights_take_as_much_memory_as_those_that_are_loaded(name: str, tmp_path: Path) -> None:
    save_model(name, tmp_path)
    spec = load_model_spec(tmp_path)
    loaded = load_weights(tmp_path, spec, dtype=torch.float32, ops=CpuOps())
    assert weights_in_memory(spec, itemsize=4) == loaded.nbytes


def test_an_adapter_takes_its_weights_and_a_head_of_the_arena() -> None:
    spec = load_model("qwen3-8b")
    weights = adapter_bytes(spec, 16, modules=MODULES)
    assert 0 < arena_bytes(spec, 16, modules=MODULES) - weights <= spec.n_layers * len(MODULES) * 8 + 32


def test_adapters_bound_only_where_they_are_not_all_there_and_fewer_than_contexts() -> None:
    assert bound_of(10.0, adapters=100, resident=100) == "kv"
    assert bound_of(10.0, adapters=100, resident=20) == "kv"
    assert bound_of(30.0, adapters=100, resident=20) == "adapters"


def test_engines_for_a_load_are_never_given_more_than_their_share() -> None:
    assert replicas_for(0.1, 10.0) == 1
    assert replicas_for(10.0 * BUSY_SHARE, 10.0) == 1
    assert replicas_for(10.0 * BUSY_SHARE + 0.01, 10.0) == 2
    assert replicas_for(100.0, 10.0) == 13
