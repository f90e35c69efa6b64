"""Paged attention against the oracle; every slot that holds no token is NaN."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lorikeet_engine.ops.interface import AttentionBatch, Ops
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.attention_cases import (
    ATTENTION_CASES,
    ATTENTION_TOLERANCE,
    AttentionCase,
    AttentionData,
    attention_data,
)
from tests.support.ops_cases import TOLERANCE, relative_error

MIXED = next(case for case in ATTENTION_CASES if case.name == "decode_and_prefill")


def attend(ops: Ops, case: AttentionCase, data: AttentionData) -> torch.Tensor:
    plan = ops.plan_attention(
        batch=data.batch,
        window=case.window,
        n_kv_heads=case.kv_heads,
        block_size=case.block,
        dtype=data.q.dtype,
    )
    scale = case.width**-0.5
    return ops.attention(q=data.q, k_cache=data.k_cache, v_cache=data.v_cache, plan=plan, scale=scale)


def write(ops: Ops, data: AttentionData, k: torch.Tensor, v: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    return ops.rotary_write_kv(
        q=data.q,
        k=k,
        v=v,
        rotary=(angles.cos(), angles.sin()),
        batch=data.batch,
        k_cache=data.k_cache,
        v_cache=data.v_cache,
    )


@pytest.mark.parametrize("case", ATTENTION_CASES, ids=str)
def test_attention_equals_the_oracle_over_poisoned_pages(ops: Ops, dtype: torch.dtype, case: AttentionCase) -> None:
    data = attention_data(case, dtype)
    expected = attend(ReferenceOps(exact=True), case, data)
    assert relative_error(attend(ops, case, data), expected) <= ATTENTION_TOLERANCE[dtype]


def test_a_decode_row_does_not_depend_on_its_companions(ops: Ops, dtype: torch.dtype) -> None:
    case = AttentionCase("companions", ((40, 1), (200, 1), (3, 1)))
    data = attention_data(case, dtype)
    together = attend(ops, case, data)
    for row, context in enumerate(data.batch.context_lens):
        alone = AttentionBatch(
            n_decode=1,
            query_starts=(0, 1),
            context_lens=(context,),
            block_tables=data.batch.block_tables[row : row + 1],
            slot_blocks=data.batch.slot_blocks[row : row + 1],
            slot_offsets=data.batch.slot_offsets[row : row + 1],
        )
        single = attend(ops, case, replace(data, q=data.q[row : row + 1], batch=alone))
        assert relative_error(together[row], single[0]) <= ATTENTION_TOLERANCE[dtype]


def test_one_rows_nan_stays_its_own(ops: Ops, dtype: torch.dtype) -> None:
    data = attention_data(MIXED, dtype)
    expected = attend(ReferenceOps(exact=True), MIXED, data)
    data.v_cache[data.batch.block_tables[0, 0]] = float("nan")
    found = attend(ops, MIXED, data)
    assert bool(torch.isnan(found[0]).all())
    assert relative_error(found[1:], expected[1:]) <= ATTENTION_TOLERANCE[dtype]


def test_keys_are_rotated_and_only_the_steps_slots_are_written(ops: Ops, dtype: torch.dtype) -> None:
    data, oracle = attention_data(MIXED, dtype), attention_data(MIXED, dtype)
    generator = torch.Generator().manual_seed(3)
    n_tokens = data.q.shape[0]
    k, v = (torch.randn(n_tokens, MIXED.kv_heads, MIXED.width, generator=generator).to(dtype) for _ in range(2))
    angles = torch.rand(n_tokens, MIXED.width // 2, generator=generator) * 6
    before = data.k_cache.clone()
    q = write(ops, data, k, v, angles)
    expected_q = write(ReferenceOps(exact=True), oracle, k, v, angles)
    assert relative_error(q, expected_q) <= TOLERANCE[dtype]
    slots = (data.batch.slot_blocks, slice(None), data.batch.slot_offsets)
    assert relative_error(data.k_cache[slots], oracle.k_cache[slots]) <= TOLERANCE[dtype]
    assert torch.equal(data.v_cache[slots], v)
    before[slots] = data.k_cache[slots]
    assert torch.equal(before.nan_to_num(9), data.k_cache.nan_to_num(9))


def test_a_layer_without_rotary_embedding_stores_its_keys_as_they_are(ops: Ops, dtype: torch.dtype) -> None:
    data = attention_data(MIXED, dtype)
    k = torch.randn(data.q.shape[0], MIXED.kv_heads, MIXED.width).to(dtype)
    q = ops.rotary_write_kv(
        q=data.q, k=k, v=k, rotary=None, batch=data.batch, k_cache=data.k_cache, v_cache=data.v_cache
    )
    assert torch.equal(q, data.q)
    assert torch.equal(data.k_cache[data.batch.slot_blocks, :, data.batch.slot_offsets], k)
