"""Adapters' deltas against the oracle, on a sum and alone; grains between extents are NaN."""

from __future__ import annotations

import pytest
import torch

from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.ops_cases import (
    DELTA_TOLERANCE,
    LORA_CASES,
    N_LAYERS,
    SITES,
    TOLERANCE,
    LoraCase,
    LoraData,
    lora_data,
    relative_error,
)


def add(ops: Ops, data: LoraData, site: str, layer: int, out: torch.Tensor) -> torch.Tensor:
    shape = data.arena.site(SITES[site])
    ops.add_lora(out=out, x=data.x, arena=data.arena.storage, runs=data.runs, layer=layer, site=shape)
    return out


@pytest.mark.parametrize("site", list(SITES))
@pytest.mark.parametrize("case", LORA_CASES, ids=str)
def test_a_mixed_batch_equals_a_loop_of_plain_products(ops: Ops, dtype: torch.dtype, case: LoraCase, site: str) -> None:
    data = lora_data(case, site, dtype)
    for layer in range(N_LAYERS):
        expected = add(ReferenceOps(), data, site, layer, data.out.double())
        assert relative_error(add(ops, data, site, layer, data.out.clone()), expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("site", list(SITES))
@pytest.mark.parametrize("case", LORA_CASES, ids=str)
def test_the_delta_alone_is_right(ops: Ops, dtype: torch.dtype, case: LoraCase, site: str) -> None:
    data = lora_data(case, site, dtype)
    expected = add(ReferenceOps(), data, site, 1, torch.zeros_like(data.out, dtype=torch.float64))
    found = add(ops, data, site, 1, torch.zeros_like(data.out))
    assert relative_error(found, expected) <= DELTA_TOLERANCE[dtype]


@pytest.mark.parametrize("site", list(SITES))
def test_the_base_models_tokens_are_not_touched(ops: Ops, dtype: torch.dtype, site: str) -> None:
    case = next(case for case in LORA_CASES if case.name == "base_in_the_middle")
    data = lora_data(case, site, dtype)
    found = add(ops, data, site, 0, data.out.clone())
    for first, end in ((3, 7), (9, 14)):
        assert torch.equal(found[first:end], data.out[first:end])


def test_one_adapters_nan_input_reaches_no_other_row(ops: Ops, dtype: torch.dtype) -> None:
    case = next(case for case in LORA_CASES if case.name == "ragged")
    data = lora_data(case, "qkv", dtype)
    expected = add(ReferenceOps(), data, "qkv", 0, data.out.double())
    data.x[:3] = float("nan")
    found = add(ops, data, "qkv", 0, data.out.clone())
    assert relative_error(found[3:], expected[3:]) <= TOLERANCE[dtype]
