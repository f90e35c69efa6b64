"""The memory table of a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.config import EngineConfig
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.execution.machine import host_memory
from lorikeet_engine.execution.machine.device import GpuMemory
from lorikeet_engine.execution.machine.host_memory import available_memory
from lorikeet_engine.model_spec import spec_from_config
from lorikeet_engine.sizing.memory_budget import MemoryBudget, plan_memory
from tests.support.tiny_models import CONFIGS

GIB = 1 << 30
SPEC = spec_from_config({**CONFIGS["llama"].to_dict(), "architectures": ["LlamaForCausalLM"]}, eos=2)
BLOCK_BYTES = 2 * 2 * 2 * 16 * 32 * 2  # K and V, layers, KV heads, head width, block, bf16


def budget(available: int = 4 * GIB, **knobs: Any) -> MemoryBudget:
    config = EngineConfig(model_dir=Path("m"), model_name="tiny", store_url="s", endpoint="ipc://e", **knobs)
    return plan_memory(config, SPEC, itemsize=2, weights_bytes=100_000_000, available_bytes=available)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"kv_cache_bytes": GIB},
        {"adapter_pool_bytes": GIB},
        {"max_num_seqs": 1},
        {"host_adapter_cache_bytes": GIB},
        {"swap_space": GIB},
        {"swap_space": 3 * BLOCK_BYTES - 1},
    ],
)
def test_the_rows_add_up(knobs: dict[str, int]) -> None:
    plan = budget(**knobs)
    assert sum(n_bytes for _, n_bytes in plan.rows) == plan.available_bytes
    assert all(n_bytes >= 0 for _, n_bytes in plan.rows)
    assert plan.kv_bytes == plan.n_blocks * plan.block_bytes
    assert plan.block_bytes == BLOCK_BYTES


def test_the_pool_takes_a_quarter_unless_told() -> None:
    assert budget().kv_bytes == GIB // BLOCK_BYTES * BLOCK_BYTES
    assert budget(kv_cache_bytes=100 * BLOCK_BYTES + 5).n_blocks == 100


def test_a_larger_arena_leaves_less_and_the_same_pool() -> None:
    small, large = budget(adapter_pool_bytes=1 << 20), budget(adapter_pool_bytes=1 << 21)
    assert small.left_bytes - large.left_bytes == 1 << 20
    assert small.kv_bytes == large.kv_bytes


def test_what_a_gpu_would_keep_on_the_host_comes_out_of_the_same_memory() -> None:
    plain = budget(host_adapter_cache_bytes=1 << 20)
    more = budget(host_adapter_cache_bytes=1 << 21, swap_space=100 * BLOCK_BYTES + 5)
    assert plain.n_host_slots == 0
    assert more.n_host_slots == 100
    assert plain.left_bytes - more.left_bytes == (1 << 20) + 100 * BLOCK_BYTES


def test_a_swap_space_below_one_block_is_refused_with_the_numbers() -> None:
    with pytest.raises(UnsupportedModel, match=f"swap_space 5 does not hold one KV block of {BLOCK_BYTES}"):
        budget(swap_space=5)


def test_whole_prompts_need_a_step_that_holds_the_longest_beside_all_decodes() -> None:
    knobs = {"enable_chunked_prefill": False, "max_model_len": 200, "max_num_seqs": 32}
    assert budget(**knobs, max_num_batched_tokens=232).max_model_len == 200
    with pytest.raises(UnsupportedModel, match=r"max_num_batched_tokens \(231\).*max_model_len \(200\).*232"):
        budget(**knobs, max_num_batched_tokens=231)


def test_chunked_prompts_do_not_need_it() -> None:
    assert budget(max_model_len=200, max_num_batched_tokens=64).max_model_len == 200


def gpu_budget(available: int = 8 * GIB, host: int = 4 * GIB, **knobs: Any) -> MemoryBudget:
    config = EngineConfig(
        model_dir=Path("m"), model_name="tiny", store_url="s", endpoint="ipc://e", device="cuda", **knobs
    )
    return plan_memory(
        config,
        SPEC,
        itemsize=2,
        weights_bytes=100_000_000,
        available_bytes=available,
        host_bytes=host,
        recorded_rows=(1, 64),
    )


@pytest.mark.parametrize("knobs", [{}, {"kv_cache_bytes": GIB}, {"swap_space": GIB}, {"max_num_seqs": 4}])
def test_the_rows_of_a_gpu_add_up_and_what_stays_on_the_host_is_not_among_them(knobs: dict[str, int]) -> None:
    plan = gpu_budget(**knobs)
    assert sum(n_bytes for _, n_bytes in plan.rows) == plan.available_bytes
    assert {"host adapters", "swap pool"}.isdisjoint(dict(plan.rows))
    assert plan.host_left_bytes == 4 * GIB - 256 * (1 << 20) - plan.swap_bytes
    assert "graphs" in plan.table()
    assert "left on host" in plan.table()


def test_the_pool_of_a_gpu_takes_what_is_left() -> None:
    plan, larger = gpu_budget(), gpu_budget(adapter_pool_bytes=5 * GIB)
    assert plan.left_bytes < plan.block_bytes
    assert plan.kv_bytes - larger.kv_bytes == GIB
    assert plan.max_model_len == 256


def test_seats_of_a_gpu_follow_the_pool_unless_they_are_set() -> None:
    small = gpu_budget(kv_cache_bytes=41 * BLOCK_BYTES, max_model_len=64)
    assert small.max_num_seqs == small.suggested_max_num_seqs == 13
    assert gpu_budget().max_num_seqs == 256
    assert gpu_budget(max_num_seqs=5).max_num_seqs == 5


def test_more_than_the_host_has_is_refused_with_the_numbers() -> None:
    with pytest.raises(UnsupportedModel, match="short of memory on the host"):
        gpu_budget(host=GIB, swap_space=GIB)


def test_the_bytes_of_others_count_against_the_share_of_a_gpu() -> None:
    assert GpuMemory(total_bytes=1000, free_bytes=1000).allowed(0.9) == 900
    assert GpuMemory(total_bytes=1000, free_bytes=700).allowed(0.9) == 600
    assert GpuMemory(total_bytes=1000, free_bytes=50).allowed(0.9) == 0


def test_concurrency_counts_requests_of_full_length_without_the_reserved_block() -> None:
    plan = budget(max_model_len=64, kv_cache_bytes=41 * BLOCK_BYTES)
    assert plan.concurrency == 20
    assert plan.suggested_max_num_seqs == 13


def test_concurrency_counts_whole_blocks() -> None:
    plan = budget(max_model_len=65, kv_cache_bytes=41 * BLOCK_BYTES)
    assert plan.request_bytes == 3 * BLOCK_BYTES
    assert plan.concurrency == 40 / 3


def test_the_suggested_pool_would_use_what_is_left() -> None:
    plan = budget()
    bigger = budget(kv_cache_bytes=plan.kv_bytes_to_use_all)
    assert 0 <= bigger.left_bytes < BLOCK_BYTES


def test_the_table_names_every_row() -> None:
    plan = budget()
    for name, _ in plan.rows:
        assert name in plan.table()
    assert f"suggested max_num_seqs {plan.suggested_max_num_seqs}" in plan.table()


def test_a_pool_too_small_for_one_request_is_refused_with_the_numbers() -> None:
    needed = (256 // 32 + 1) * BLOCK_BYTES
    assert budget(kv_cache_bytes=needed).n_blocks == 9
    with pytest.raises(UnsupportedModel, match=f"needs kv_cache_bytes {needed}"):
        budget(kv_cache_bytes=needed - 1)


def test_more_than_there_is_is_refused_with_the_table() -> None:
    with pytest.raises(UnsupportedModel, match=r"short of memory(.|\n)*adapter arena"):
        budget(available=GIB, adapter_pool_bytes=GIB)


def test_a_length_beyond_the_models_own_is_refused_not_shortened() -> None:
    with pytest.raises(UnsupportedModel, match="beyond the model's 256"):
        budget(max_model_len=257)


@pytest.mark.parametrize(("left", "available"), [(3000, 3000), (None, 9000), (12000, 9000)])
def test_a_containers_limit_counts(monkeypatch: pytest.MonkeyPatch, left: int | None, available: int) -> None:
    monkeypatch.setattr(host_memory, "memory_left", lambda: left)
    monkeypatch.setattr(host_memory, "_meminfo_available", lambda: 9000)
    assert available_memory() == available


def test_the_available_memory_of_this_machine_is_found() -> None:
    assert available_memory() > 1 << 20
