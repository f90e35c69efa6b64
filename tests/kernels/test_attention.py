"""Paged attention and the write of keys and values against the oracle; every slot that holds no token is NaN."""

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
    attend,
    attention_case,
    attention_data,
    rows_of,
)
from tests.support.closeness import DTYPES, TOLERANCE, relative_error
from tests.support.ops_cases import BACKENDS, dtypes_of

MIXED = attention_case("decode_and_prefill")
RUNS = [
    pytest.param(backend, DTYPES[dtype], case, id=f"{backend}-{dtype}-{case}")
    for case in ATTENTION_CASES
    for backend in BACKENDS
    for dtype in dtypes_of(backend)
    if backend != "interpreter" or dtype in case.interpreted
]


@pytest.mark.parametrize(("backend", "kind", "case"), RUNS)
def test_attention_equals_the_oracle_over_poisoned_pages(backend: str, kind: torch.dtype, case: AttentionCase) -> None:
    data = attention_data(case, kind)
    expected = attend(ReferenceOps(exact=True), case, data)
    assert relative_error(attend(BACKENDS[backend](), case, data), expected) <= ATTENTION_TOLERANCE[kind]


def test_a_decode_row_does_not_depend_on_its_companions(ops: Ops, dtype: torch.dtype) -> None:
    case = AttentionCase("companions", ((40, 1), (200, 1), (3, 1)), heads=3, kv_heads=1)
    data = attention_data(case, dtype)
    together = attend(ops, case, data)
    for row in range(data.batch.n_rows):
        batch, tokens = rows_of(data.batch, [row])
        alone = attend(ops, case, replace(data, q=data.q[tokens], batch=batch))
        assert relative_error(together[row], alone[0]) <= ATTENTION_TOLERANCE[dtype]


def test_one_rows_nan_stays_its_own(ops: Ops, dtype: torch.dtype) -> None:
    data = attention_data(MIXED, dtype)
    expected = attend(ReferenceOps(exact=True), MIXED, data)
    data.v_cache[data.batch.block_tables[0, 0]] = float("nan")
    found = attend(ops, MIXED, data)
    assert bool(torch.isnan(found[0]).all())
    assert relative_error(found[1:], expected[1:]) <= ATTENTION_TOLERANCE[dtype]


@pytest.mark.parametrize(("block", "window"), [(1, 0), (1, 32), (16, 32), (16, 0)])
def test_nothing_of_a_row_before_is_left_for_the_next(ops: Ops, dtype: torch.dtype, block: int, window: int) -> None:
    """A row whose every score is NaN, then one that ends where a kernel's unit of work does."""
    case = AttentionCase("after", ((101, 1), (16, 1), (53, 1)), block=block, window=window)
    data = attention_data(case, dtype)
    expected = attend(ReferenceOps(exact=True), case, data)
    data.q[0] = float("nan")
    found = attend(ops, case, data)
    assert bool(torch.isnan(found[0]).all())
    assert relative_error(found[1:], expected[1:]) <= ATTENTION_TOLERANCE[dtype]


@pytest.mark.parametrize("chunk", [1, 7, 16, 24])
def test_a_prompt_in_chunks_is_a_prompt_at_once(ops: Ops, dtype: torch.dtype, chunk: int) -> None:
    case = AttentionCase("prompt", ((44, 44),), heads=3, kv_heads=1)
    data = attention_data(case, dtype)
    at_once = attend(ops, case, data)
    for first in range(0, 44, chunk):
        end = min(first + chunk, 44)
        n_tokens = end - first
        batch = AttentionBatch(
            n_decode=int(n_tokens == 1),
            query_starts=(0, n_tokens),
            context_lens=(end,),
            contexts=torch.tensor([end]),
            block_tables=data.batch.block_tables,
            positions=data.batch.positions[first:end],
            slot_blocks=data.batch.slot_blocks[first:end],
            slot_offsets=data.batch.slot_offsets[first:end],
        )
        part = attend(ops, case, replace(data, q=data.q[first:end], batch=batch))
        assert relative_error(part, at_once[first:end]) <= ATTENTION_TOLERANCE[dtype]


def fused_heads(case: AttentionCase, dtype: torch.dtype, n_tokens: int) -> tuple[torch.Tensor, ...]:
    """q, k and v as a model has them: slices of one product."""
    generator = torch.Generator().manual_seed(3)
    heads = torch.randn(n_tokens, case.heads + 2 * case.kv_heads, case.width, generator=generator).to(dtype)
    return torch.split(heads, [case.heads, case.kv_heads, case.kv_heads], dim=1)


def write(
    ops: Ops, data: AttentionData, heads: tuple[torch.Tensor, ...], rotary: tuple[torch.Tensor, torch.Tensor] | None
) -> torch.Tensor:
    q, k, v = heads
    return ops.rotary_write_kv(
        q=q, k=k, v=v, rotary=rotary, batch=data.batch, k_cache=data.k_cache, v_cache=data.v_cache
    )


def rotary_table(case: AttentionCase) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.rand(320, case.width // 2, generator=torch.Generator().manual_seed(4)) * 6
    return angles.cos(), angles.sin()


@pytest.mark.parametrize(
    "case",
    [
        MIXED,
        AttentionCase("odd", ((9, 1), (0, 1), (20, 5)), heads=9, kv_heads=3, width=80),
        AttentionCase("many_heads", ((9, 1), (20, 2)), heads=20, kv_heads=10, width=96, block=32),
    ],
    ids=str,
)
def test_keys_are_rotated_and_only_the_steps_slots_are_written(
    ops: Ops, dtype: torch.dtype, case: AttentionCase
) -> None:
    data, oracle = attention_data(case, dtype), attention_data(case, dtype)
    heads = fused_heads(case, dtype, data.q.shape[0])
    before = data.k_cache.clone()
    kept = data.batch.slot_blocks >= 0
    q = write(ops, data, heads, rotary_table(case))
    expected_q = write(ReferenceOps(exact=True), oracle, heads, rotary_table(case))
    assert relative_error(q[kept], expected_q[kept]) <= TOLERANCE[dtype]
    slots = (data.batch.slot_blocks[kept], slice(None), data.batch.slot_offsets[kept])
    assert relative_error(data.k_cache[slots], oracle.k_cache[slots]) <= TOLERANCE[dtype]
    assert torch.equal(data.v_cache[slots], heads[2][kept])
    before[slots] = data.k_cache[slots]
    assert torch.equal(before.nan_to_num(9), data.k_cache.nan_to_num(9))


def test_a_layer_without_rotary_embedding_stores_its_keys_as_they_are(ops: Ops, dtype: torch.dtype) -> None:
    data = attention_data(MIXED, dtype)
    q, k, _ = heads = fused_heads(MIXED, dtype, data.q.shape[0])
    assert torch.equal(write(ops, data, heads, None), q)
    assert torch.equal(data.k_cache[data.batch.slot_blocks, :, data.batch.slot_offsets], k)


def test_what_pads_a_recorded_step_is_written_nowhere(ops: Ops, dtype: torch.dtype) -> None:
    """A slot of -1 is neither block 0 nor, as Python would count, the last one; NaN in a padding row stays there."""
    case = attention_case("decode_padded")
    data = attention_data(case, dtype)
    heads = fused_heads(case, dtype, data.q.shape[0])
    padding = data.batch.slot_blocks < 0
    for part in heads:
        part[padding] = float("nan")
    before = data.k_cache.clone(), data.v_cache.clone()
    q = write(ops, data, heads, rotary_table(case))
    assert bool(torch.isfinite(q[~padding]).all())
    for cache, old in zip((data.k_cache, data.v_cache), before, strict=True):
        slots = (data.batch.slot_blocks[~padding], slice(None), data.batch.slot_offsets[~padding])
        assert bool(torch.isfinite(cache[slots]).all())
        old[slots] = cache[slots]
        assert torch.equal(old.nan_to_num(9), cache.nan_to_num(9))
