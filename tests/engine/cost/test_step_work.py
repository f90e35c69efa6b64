"""What a step computes and reads, and how well that used the device."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.cost import (
    ModelCost,
    StepShape,
    StepWork,
    adapter_bytes,
    intensity,
    lora_row_flops,
    mbu,
    mfu,
    ridge,
    roofline_seconds,
    step_work,
)
from tests.engine.cost.published_models import GB, LLAMA3_8B, QWEN25_COST, RTX_4090, published

SHAPES = st.builds(
    StepShape,
    n_decode=st.integers(1, 256),
    decode_context=st.integers(1, 1 << 20),
    n_prefill=st.integers(0, 8192),
    prefill_pairs=st.integers(0, 1 << 26),
    prefill_context=st.integers(0, 1 << 20),
    n_sampled=st.integers(0, 256),
    lora_bytes=st.integers(0, 1 << 33),
    lora_flops=st.integers(0, 1 << 45),
)


@given(SHAPES, st.floats(1e-4, 100))
def test_o1_11_mfu_over_mbu_is_intensity_over_ridge(shape: StepShape, seconds: float) -> None:
    work = step_work(QWEN25_COST, shape)
    ratio = mfu(work, seconds, RTX_4090) / mbu(work, seconds, RTX_4090)
    assert ratio == pytest.approx(intensity(work) / ridge(RTX_4090), rel=1e-9)


@given(st.lists(SHAPES, min_size=1, max_size=8), st.integers(0, 7))
def test_any_window_of_the_totals_is_the_work_of_its_steps(shapes: list[StepShape], split: int) -> None:
    before = sum((step_work(QWEN25_COST, shape) for shape in shapes[:split]), StepWork())
    after = sum((step_work(QWEN25_COST, shape) for shape in shapes[split:]), before)
    assert after - before == sum((step_work(QWEN25_COST, shape) for shape in shapes[split:]), StepWork())


def test_a_step_counts_what_the_formulas_say() -> None:
    shape = StepShape(lora_bytes=1000, lora_flops=5000)
    shape.add_decode(99)
    shape.add_decode(199)
    shape.add_prefill(10, 50, samples=False)
    work = step_work(QWEN25_COST, shape)
    pairs = 100 + 200 + 10 * 50 + 55
    assert work.flops == (
        2 * QWEN25_COST.layer_params * 12
        + 2 * QWEN25_COST.head_params * 2
        + QWEN25_COST.attention_flops_per_pair * pairs
        + 5000
    )
    assert work.read_bytes == QWEN25_COST.weights_bytes + 12 * 3584 * 2 + 57344 * (100 + 200 + 50) + 1000
    assert work.write_bytes == 57344 * 12
    assert (work.lora_flops, work.lora_bytes) == (5000, 1000)


def test_an_empty_step_reads_nothing_and_an_unsampled_one_not_the_head() -> None:
    assert step_work(QWEN25_COST, StepShape()) == StepWork()
    chunk = step_work(QWEN25_COST, StepShape(n_prefill=1))
    assert chunk.read_bytes == QWEN25_COST.layer_bytes + QWEN25_COST.embedding_bytes


def test_prefilling_in_chunks_meets_as_many_pairs_as_at_once() -> None:
    whole, chunks = StepShape(), StepShape()
    whole.add_prefill(1000, 24, samples=True)
    for start in range(0, 1000, 250):
        chunks.add_prefill(250, 24 + start, samples=start == 750)
    assert (whole.prefill_pairs, whole.n_prefill, whole.n_sampled) == (chunks.prefill_pairs, 1000, chunks.n_sampled)


def test_qwen25_7b_takes_13_05_gflop_a_token_and_1_09_more_when_it_is_sampled() -> None:
    assert 2 * QWEN25_COST.layer_params / 1e9 == pytest.approx(13.05, abs=0.005)
    assert 2 * QWEN25_COST.head_params / 1e9 == pytest.approx(1.09, abs=0.005)


def test_sixteen_rows_at_256_tokens_read_14_53_gb() -> None:
    shape = StepShape(n_decode=16, decode_context=16 * 256, n_sampled=16)
    kv = step_work(QWEN25_COST, shape).read_bytes - step_work(QWEN25_COST, replace(shape, decode_context=0)).read_bytes
    assert (14.3 * GB + kv) / GB == pytest.approx(14.53, abs=0.005)


def test_each_token_of_context_adds_0_00091_ms_to_a_step_of_sixteen() -> None:
    assert 16 * QWEN25_COST.kv_bytes_per_token / RTX_4090.peak_bandwidth * 1e3 == pytest.approx(0.00091, abs=0.000005)


def test_a_token_through_an_adapter_multiplies_each_of_its_weights_once() -> None:
    one_rank = adapter_bytes(LLAMA3_8B, 1)
    assert one_rank / (1 << 20) == pytest.approx(5.0, abs=0.01)
    widths = {"qkv": 3 * 4096 + 6144, "o": 8192, "gate_up": 2 * 4096 + 28672, "down": 14336 + 4096}
    assert lora_row_flops(16 * one_rank) == 2 * 16 * 32 * sum(widths.values())


def test_a_tied_head_is_read_like_any_other() -> None:
    tied = replace(published("llama-3-8b"), tied_embeddings=True)
    assert ModelCost.of(tied) == ModelCost.of(LLAMA3_8B)


@given(SHAPES, st.sampled_from([field.name for field in fields(StepShape)]))
def test_more_work_never_takes_less_time(shape: StepShape, name: str) -> None:
    more = replace(shape, **{name: getattr(shape, name) * 2 + 1})
    assert roofline_seconds(QWEN25_COST, RTX_4090, more) >= roofline_seconds(QWEN25_COST, RTX_4090, shape)


@given(st.integers(1, 64), st.integers(1, 4096), st.integers(1, 4096))
def test_a_mixed_step_takes_longer_than_either_part_and_less_than_both(rows: int, context: int, prompt: int) -> None:
    decode, prefill, mixed = StepShape(), StepShape(), StepShape()
    for _ in range(rows):
        decode.add_decode(context)
        mixed.add_decode(context)
    prefill.add_prefill(prompt, 0, samples=True)
    mixed.add_prefill(prompt, 0, samples=True)
    parts = [roofline_seconds(QWEN25_COST, RTX_4090, shape) for shape in (decode, prefill)]
    assert max(parts) <= roofline_seconds(QWEN25_COST, RTX_4090, mixed) <= sum(parts) * (1 + 1e-9)
