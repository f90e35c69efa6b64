"""Adapters' deltas against the oracle, on a sum and alone; grains between extents are NaN."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lorikeet_adapters.manifest import DORA, GRAIN
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.closeness import DELTA_TOLERANCE, TOLERANCE, relative_error
from tests.support.lora_cases import (
    ALL_BUT_Q_AND_V,
    GAP,
    LORA_CASES,
    PLACES,
    LoraCase,
    LoraData,
    add_lora,
    lora_case,
    lora_data,
    lora_table,
    random_extent,
    runs_at,
)


def expected_sum(data: LoraData, site: str, layer: int) -> torch.Tensor:
    return add_lora(ReferenceOps(), data, site, layer, data.out.double())


@pytest.mark.parametrize(("case", "site"), PLACES, ids=str)
def test_a_mixed_batch_equals_a_loop_of_plain_products(ops: Ops, dtype: torch.dtype, case: LoraCase, site: str) -> None:
    data = lora_data(case, site, dtype)
    found = add_lora(ops, data, site, 0, data.out.clone())
    assert relative_error(found, expected_sum(data, site, 0)) <= TOLERANCE[dtype]


@pytest.mark.parametrize("case", LORA_CASES, ids=str)
def test_the_delta_alone_is_right(ops: Ops, dtype: torch.dtype, case: LoraCase) -> None:
    data = lora_data(case, "qkv", dtype)
    expected = add_lora(ReferenceOps(), data, "qkv", 1, torch.zeros_like(data.out, dtype=torch.float64))
    found = add_lora(ops, data, "qkv", 1, torch.zeros_like(data.out))
    assert relative_error(found, expected) <= DELTA_TOLERANCE[dtype]


def test_the_base_models_tokens_are_not_touched(ops: Ops, dtype: torch.dtype) -> None:
    data = lora_data(lora_case("base_in_the_middle"), "qkv", dtype)
    found = add_lora(ops, data, "qkv", 0, data.out.clone())
    for first, end in ((3, 7), (9, 14)):
        assert torch.equal(found[first:end], data.out[first:end])


def test_modules_that_an_adapter_leaves_alone_are_not_touched(ops: Ops, dtype: torch.dtype) -> None:
    data = lora_data(lora_case("q_and_v_only"), "qkv", dtype)
    found = add_lora(ops, data, "qkv", 0, data.out.clone())
    assert torch.equal(found[:3, 48:64], data.out[:3, 48:64])
    assert not torch.equal(found[3, 48:64], data.out[3, 48:64])


def test_one_adapters_nan_input_reaches_no_other_row(ops: Ops, dtype: torch.dtype) -> None:
    data = lora_data(lora_case("ragged"), "qkv", dtype)
    expected = expected_sum(data, "qkv", 0)
    data.x[:3] = float("nan")
    found = add_lora(ops, data, "qkv", 0, data.out.clone())
    assert relative_error(found[3:], expected[3:]) <= TOLERANCE[dtype]


def test_an_extent_may_move_between_two_steps(ops: Ops, dtype: torch.dtype) -> None:
    data = lora_data(LoraCase("move", ((3, 8), (1, 16), (2, None)), flags=(DORA, 0)), "qkv", dtype)
    expected = expected_sum(data, "qkv", 1)
    add_lora(ops, data, "qkv", 1, data.out.clone())
    first, second = (run.base for run in data.runs)
    size = second - GAP - first
    data.arena.move(first, first - 4, size)
    data.arena.storage[(first + size - 4) * GRAIN : (first + size) * GRAIN] = float("nan")
    moved = replace(data, runs=runs_at(data.arena, ((3, first - 4), (1, second))))
    found = add_lora(ops, moved, "qkv", 1, data.out.clone())
    assert relative_error(found, expected) <= TOLERANCE[dtype]


def test_an_adapter_in_another_ones_place_serves_nothing_of_it(ops: Ops, dtype: torch.dtype) -> None:
    """Field bugs: a mapping remembered from the last step; a module that the new adapter lacks kept the old weights."""
    case = LoraCase("place", ((3, 8), (1, 16), (2, None)))
    data = lora_data(case, "qkv", dtype)
    base = data.runs[0].base
    add_lora(ops, data, "qkv", 0, data.out.clone())
    generator = torch.Generator().manual_seed(5)
    narrow = random_extent(lora_table(case.hidden), 4, dtype, generator, skipped=ALL_BUT_Q_AND_V)
    data.arena.write(base, narrow)
    swapped = replace(data, runs=runs_at(data.arena, ((3, base), (1, data.runs[1].base))))
    for site in ("qkv", "o"):
        there = lora_data(case, site, dtype)
        again = replace(swapped, x=there.x, out=there.out)
        found = add_lora(ops, again, site, 0, again.out.clone())
        assert relative_error(found, expected_sum(again, site, 0)) <= TOLERANCE[dtype]
