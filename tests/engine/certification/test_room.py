"""What is held beside an adapter, and which adapters no memory is left for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_engine.certification.measured import Measured, failures
from lorikeet_engine.certification.measuring import Measurer
from lorikeet_engine.certification.room import WORKSPACE_BYTES, Room
from tests.engine.certification.conftest import Made, Make

MODEL = 4 * (128 * 64 * 2 + 2 * (64 * (64 + 32 + 32 + 64 + 96 * 3) + 64 + 32 + 32 + 2 * 64) + 64)
EMBEDDING = 4 * 128 * 64
LARGE = {"target_modules": "all-linear", "r": 16}


def test_each_adapter_is_counted_with_its_file_its_extent_and_its_place_in_the_arena() -> None:
    room = Room(free_bytes=10_000, model_bytes=3_000, embedding_bytes=1_000)
    assert [room.copies_beside(1_000, extent) for extent in (0, 1_000, 1_001, 3_000, 3_001, 4_000)] == [
        2,
        2,
        1,
        1,
        0,
        0,
    ]
    with pytest.raises(AdapterRejected) as rejected:
        room.copies_beside(1_001, 4_000)
    assert rejected.value.code == "adapter_too_large"
    assert "9001 bytes" in rejected.value.message
    assert "at most 9000 bytes" in rejected.value.message


def test_the_tiny_model_is_counted_in_float32(model_dir: Path) -> None:
    assert Room.for_model(model_dir, WORKSPACE_BYTES + 50_000) == Room(50_000, MODEL, EMBEDDING)
    with pytest.raises(MemoryError, match="embedding"):
        Room.for_model(model_dir, WORKSPACE_BYTES + EMBEDDING)


def test_a_large_adapter_leaves_room_for_fewer_copies_and_the_next_has_it_again(
    model_dir: Path, measurer: Measurer, make: Make
) -> None:
    small, large = make(), make(**LARGE)
    bytes_of = {made.digest: made.image.stat().st_size for made in (small, large)}
    assert bytes_of[large.digest] > 5 * bytes_of[small.digest]

    def measured_in(memory: int) -> list[Measured]:
        tight = Measurer(model_dir, "tiny", max_rank=64, memory_bytes=WORKSPACE_BYTES + memory)
        return [tight.measure(**made.given) for made in (small, large, small)]

    first, second, third = measured_in(2 * MODEL + 3 * bytes_of[large.digest])
    assert (first.oracle, second.oracle, third) == ("peft", "reference_ops", first)
    assert first == measurer.measure(**small.given)
    assert second.n_tokens == first.n_tokens
    first, second, third = measured_in(MODEL + 5 * bytes_of[large.digest] // 2)
    assert (first.n_tokens, second.n_tokens, third) == (32, 4, first)
    assert failures(second) == ()


def test_an_adapter_that_fits_nowhere_is_refused_with_the_numbers_and_the_next_is_measured(
    model_dir: Path, make: Make
) -> None:
    small, large = make(), make(**LARGE)
    room = 5 * small.image.stat().st_size
    tight = Measurer(model_dir, "tiny", max_rank=64, memory_bytes=WORKSPACE_BYTES + EMBEDDING + room)
    with pytest.raises(AdapterRejected, match=f"at most {room} bytes") as rejected:
        tight.measure(**large.given)
    assert rejected.value.code == "adapter_too_large"
    assert tight.measure(**small.given).oracle == "reference_ops"


def test_v17_what_only_the_engines_number_format_cannot_hold_is_refused_by_tensor(
    measurer: Measurer, make: Make, normalised: Callable[[Path], Made]
) -> None:
    """Every number in the file is in bounds; folded with DoRA's lengths, those of B leave float16 and no other."""
    folder = make(use_dora=True, target_modules=["q_proj"]).folder
    weights = folder / "adapter_model.safetensors"
    factors = {"lora_A": 1.0, "lora_B": 20.0}
    state = {
        name: torch.full_like(tensor, 60_000.0) if "magnitude" in name else tensor * factors[name.split(".")[-2]]
        for name, tensor in load_file(weights).items()
    }
    save_file(state, weights)
    made = normalised(folder)
    measured = measurer.measure(**made.given)
    assert measurer.measure(**made.given | {"serving_dtype": "bfloat16"}) == measured
    with pytest.raises(AdapterRejected, match="float16") as rejected:
        measurer.measure(**made.given | {"serving_dtype": "float16"})
    assert (rejected.value.code, rejected.value.param) == ("weight_out_of_range", "layers.0.self_attn.q_proj.lora_B")
