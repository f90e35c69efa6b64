"""Figures that articles about batching, KV caches and LoRA serving published, reproduced from the models' shapes."""

from __future__ import annotations

import pytest

from lorikeet_engine.cost import (
    DEVICES,
    ModelCost,
    StepShape,
    StepWork,
    adapter_bytes,
    balanced_batch,
    blocks_for,
    intensity,
    kv_block_bytes,
    kv_bytes_per_token,
    load_profile,
    mbu,
    mfu,
    paged_allocation,
    reads_per_token,
    ridge,
    step_work,
    suggested_max_num_seqs,
    theoretical_concurrency,
    total_seconds,
    ttft_seconds,
    weight_intensity,
)
from tests.engine.cost.published_models import (
    GB,
    GIB,
    LLAMA3_8B,
    MIB,
    QWEN3_8B,
    QWEN3_COST,
    QWEN25_7B,
    QWEN25_COST,
    QWEN25_POOL_TOKENS,
    RTX_4090,
    TFLOP,
)

LENGTHS = (9, 13, 5, 15)
GFLOP = 1e9


@pytest.mark.parametrize(
    ("context", "one"),
    [(1 << 10, 128 * MIB), (4 << 10, 512 * MIB), (32 << 10, 4 * GIB), (128 << 10, 16 * GIB)],
)
@pytest.mark.parametrize("concurrent", [1, 8, 32])
def test_o1_1_llama_3_8b_holds_128_kib_of_kv_for_each_token(context: int, one: int, concurrent: int) -> None:
    per_token = kv_bytes_per_token(LLAMA3_8B, itemsize=2)
    assert per_token == 128 << 10
    assert concurrent * context * per_token == concurrent * one


def test_o1_1_32_contexts_of_32k_are_128_gib() -> None:
    assert 32 * (32 << 10) * kv_bytes_per_token(LLAMA3_8B, itemsize=2) == 128 * GIB


def test_o1_2_qwen25_7b_holds_56_kib_for_each_token_and_would_hold_392_without_grouped_heads() -> None:
    assert kv_bytes_per_token(QWEN25_7B, itemsize=2) == 56 << 10
    ungrouped = kv_bytes_per_token(QWEN25_7B, itemsize=2) * QWEN25_7B.n_heads // QWEN25_7B.n_kv_heads
    assert ungrouped == 392 << 10
    tokens = QWEN25_POOL_TOKENS * (56 << 10) // ungrouped
    assert tokens == 12_409
    assert tokens // 16 - 256 == 519  # the longest prompt of 16 requests with 256 output tokens


def test_o1_3_a_pool_of_4_64_gib_is_86_880_tokens_in_whole_blocks_and_86_864_without_the_reserved_one() -> None:
    n_blocks = int(4.64 * GIB) // kv_block_bytes(QWEN25_7B, block_size=16, itemsize=2)
    assert n_blocks * 16 == 86_880
    assert (n_blocks - 1) * 16 == QWEN25_POOL_TOKENS


@pytest.mark.parametrize(("batch", "gib"), [(1, 14.38), (16, 1.16), (32, 0.72), (64, 0.50)])
def test_o1_4_a_batch_shares_the_reading_of_the_weights_but_not_of_the_kv(batch: int, gib: float) -> None:
    assert reads_per_token(14.1, batch, 0.28125) == pytest.approx(gib, abs=0.005)
    by_shape = reads_per_token(QWEN3_COST.weights_bytes, batch, 2048 * QWEN3_COST.kv_bytes_per_token) / GIB
    assert by_shape == pytest.approx(gib, abs=0.005)


def test_o1_4_a_batch_of_64_reads_29_times_less_for_each_token_than_one_alone() -> None:
    assert reads_per_token(14.1, 1, 0.28125) / reads_per_token(14.1, 64, 0.28125) == pytest.approx(29, abs=0.5)


def test_o1_4_weights_and_kv_balance_at_a_batch_of_about_50() -> None:
    assert balanced_batch(14.1, 0.28125) == pytest.approx(50, abs=0.5)
    assert QWEN3_COST.weights_bytes / GIB == pytest.approx(14.1, abs=0.01)
    assert 2048 * QWEN3_COST.kv_bytes_per_token / GIB == 0.28125


def test_o1_5_the_first_token_waits_for_the_queue_and_the_prefill_and_the_others_for_one_step_each() -> None:
    first = ttft_seconds(0.1, 0.096)
    assert first == pytest.approx(0.196)
    assert total_seconds(first, 256, 0.0265) - first == pytest.approx(6.76, abs=0.005)
    assert total_seconds(0.15, 128, 0.0265) == pytest.approx(3.52, abs=0.005)


def test_o1_6_reserving_whole_requests_wastes_22_of_64_tokens_and_paging_10_of_52() -> None:
    assert paged_allocation(LENGTHS, 16) == (64, 22)
    assert paged_allocation(LENGTHS, 4) == (52, 10)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("length", range(1, 40))
def test_o1_6_a_request_wastes_less_than_one_block(length: int, block_size: int) -> None:
    allocation = paged_allocation([length], block_size)
    assert 0 <= allocation.unused < block_size
    assert allocation.allocated == blocks_for(length, block_size) * block_size


def test_o1_7_a_hundred_adapters_are_small_beside_a_hundred_private_contexts() -> None:
    one = adapter_bytes(QWEN3_8B, 16, modules=("self_attn.q_proj", "self_attn.v_proj"))
    assert one / MIB == pytest.approx(14.6, abs=0.05)
    assert 100 * one / GIB == pytest.approx(1.43, abs=0.005)
    contexts = 100 * 8192 * kv_bytes_per_token(QWEN3_8B, itemsize=2)
    assert contexts == 112.5 * GIB
    assert contexts > 75 * 100 * one  # how many run at once is decided by KV, not by adapters


def test_o1_8_a_bf16_weight_gives_one_flop_a_byte_for_each_token_of_the_batch() -> None:
    assert weight_intensity(16, 2) == 16
    step = step_work(QWEN3_COST, StepShape(n_decode=16, n_sampled=16))
    assert intensity(step) == pytest.approx(16, rel=0.001)


def test_o1_9_a_qwen25_7b_token_takes_about_13_5_gflop_and_more_with_its_context() -> None:
    assert QWEN25_COST.flops_per_token(0) / GFLOP == pytest.approx(13.5, rel=0.05)
    per_context = QWEN25_COST.flops_per_token(1) - QWEN25_COST.flops_per_token(0)
    assert per_context == 4 * QWEN25_7B.hidden * QWEN25_7B.n_layers
    assert per_context / GFLOP == pytest.approx(0.000401, abs=0.0000005)


def test_o1_10_sixteen_short_requests_read_824_gb_a_second_at_56_3_steps_a_second() -> None:
    published = ModelCost(
        layer_params=1,
        head_params=1,
        attention_flops_per_pair=1,
        kv_bytes_per_token=56 << 10,
        layer_bytes=int(13.21 * GB),
        head_bytes=int(1.09 * GB),
    )
    shape = StepShape(n_decode=16, decode_context=16 * 370, n_sampled=16)  # 256 and what was generated meanwhile
    read = step_work(published, shape).read_bytes
    assert (read - published.weights_bytes) / GB == pytest.approx(0.34, abs=0.005)
    assert 56.3 * read / GB == pytest.approx(824, abs=1)
    assert 56.3 * read / GB == pytest.approx(822.5, rel=0.003)  # as measured
    assert QWEN25_COST.weights_bytes == pytest.approx(14.3 * GB, rel=0.012)


def test_o1_11_an_rtx_4090_turns_compute_bound_at_163_9_flop_a_byte() -> None:
    """By the dense peak; 330.3 TFLOP/s is the 2:4-sparse one."""
    for profile in (RTX_4090, load_profile(DEVICES / "rtx4090.json")):
        assert (profile.peak_flops, profile.peak_bandwidth) == (165.2 * TFLOP, 1008 * GB)
        assert ridge(profile) == pytest.approx(163.9, abs=0.05)


def test_o1_11_the_measured_second_at_256_tokens_was_14_2_percent_mfu_and_81_6_percent_mbu() -> None:
    second = StepWork(flops=int(23.5 * TFLOP), read_bytes=int(822.5 * GB))
    assert mfu(second, 1.0, RTX_4090) == pytest.approx(0.142, abs=0.0005)
    assert mbu(second, 1.0, RTX_4090) == pytest.approx(0.816, abs=0.0005)


def test_o1_12_seats_are_60_to_70_percent_of_the_requests_that_the_pool_holds() -> None:
    n_blocks = QWEN25_POOL_TOKENS // 16
    concurrency = theoretical_concurrency(n_blocks, 16, 4096 + 256)
    assert concurrency == pytest.approx(19.96, abs=0.005)
    assert 0.6 <= suggested_max_num_seqs(concurrency) / concurrency <= 0.7


def test_o1_12_a_pool_too_small_for_two_still_has_one_seat() -> None:
    assert suggested_max_num_seqs(1.0) == 1
