"""When copying a preempted request's KV out and back beats prefilling it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lorikeet_engine.cost import DEVICES, load_profile, load_seconds, recompute_seconds, swap_seconds
from tests.engine.cost.published_models import H200, LLAMA3_COST


@pytest.mark.parametrize(("n_tokens", "swap_ms", "recompute_ms"), [(2048, 10.7, 75), (32768, 172, 1870)])
def test_llama_3_8b_on_an_h200_swaps_in_less_time_than_it_recomputes(
    n_tokens: int, swap_ms: float, recompute_ms: float
) -> None:
    n_bytes = n_tokens * LLAMA3_COST.kv_bytes_per_token
    assert 1e3 * load_seconds(2 * n_bytes, H200.host_bandwidth) == pytest.approx(swap_ms, rel=0.005)
    assert 1e3 * recompute_seconds(LLAMA3_COST, H200, n_tokens) == pytest.approx(recompute_ms, rel=0.005)


def test_steps_wait_for_part_of_a_copy_only() -> None:
    n_bytes = 2048 * LLAMA3_COST.kv_bytes_per_token
    waited = swap_seconds(n_bytes, H200)
    assert waited == pytest.approx(0.3 * load_seconds(2 * n_bytes, H200.host_bandwidth))
    assert swap_seconds(n_bytes, replace(H200, copy_waited=1.0)) > waited


def test_recomputing_wins_below_a_few_hundred_tokens_and_swapping_above() -> None:
    device = replace(H200, step_overhead_s=0.005)
    cheaper_to_swap = [
        n_tokens
        for n_tokens in range(16, 4096, 16)
        if swap_seconds(n_tokens * LLAMA3_COST.kv_bytes_per_token, device)
        < recompute_seconds(LLAMA3_COST, device, n_tokens)
    ]
    assert 100 < cheaper_to_swap[0] < 500
    assert cheaper_to_swap == list(range(cheaper_to_swap[0], 4096, 16))


def test_what_survives_in_the_prefix_cache_is_not_recomputed() -> None:
    whole = recompute_seconds(LLAMA3_COST, H200, 2048)
    assert recompute_seconds(LLAMA3_COST, H200, 2048, survive=0.75) == pytest.approx(whole / 4)
    assert recompute_seconds(LLAMA3_COST, H200, 2048, survive=1.0) == 0


def test_each_chunk_of_a_recomputation_pays_for_a_step() -> None:
    device = replace(H200, step_overhead_s=0.002)
    one, four = (recompute_seconds(LLAMA3_COST, device, 2048, n_steps=n_steps) for n_steps in (1, 4))
    assert four - one == pytest.approx(3 * 0.002)


def test_a_cpus_steps_wait_for_every_copy() -> None:
    assert load_profile(DEVICES / "cpu2.json").copy_waited == 1.0
