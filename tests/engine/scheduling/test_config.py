"""Knobs of the engine: what is refused at start, and what the scheduler is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.config import EngineConfig, read_config

PLACES: dict[str, Any] = {
    "model_dir": Path("model"),
    "model_name": "model",
    "store_url": "store",
    "endpoint": "ipc://engine",
}


def test_the_defaults_are_allowed() -> None:
    config = EngineConfig(**PLACES)
    assert config.enable_prefix_caching
    assert config.enable_chunked_prefill
    assert (config.preemption, config.swap_space, config.ttft_deadline) == ("auto", 0, 10.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_seqs", -1),
        ("max_adapters_per_step", -1),
        ("max_queued_requests", 0),
        ("max_queued_tokens", 0),
        ("adapter_pool_bytes", -1),
        ("host_adapter_cache_bytes", 0),
        ("swap_space", -1),
        ("kv_cache_bytes", -1),
        ("ttft_deadline", -0.5),
        ("ttft_deadline", float("nan")),
        ("ttft_deadline", float("inf")),
        ("swap_space", float("nan")),
        ("tenant_queue_share", float("inf")),
        ("block_size", 24),
        ("block_size", -16),
        ("preemption", "drop"),
        ("preemption", "swap"),
        ("tenant_queue_share", 0.0),
        ("tenant_seat_share", 1.5),
        ("tenant_kv_share", -0.1),
        ("tenant_arena_share", float("nan")),
        ("dtype", "float16"),
        ("dtype", "int4"),
        ("quantization", "int4"),
        ("gpu_memory_utilization", 0.5),
        ("gpu_memory_utilization", 1.5),
        ("device", "tpu"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        EngineConfig(**PLACES, **{name: value})


def test_a_step_must_hold_every_seats_decode_and_a_block_of_a_prompt() -> None:
    """Otherwise prompts could stand still beside decodes for ever."""
    EngineConfig(**PLACES, max_num_seqs=32, block_size=16, max_num_batched_tokens=48)
    with pytest.raises(ValueError, match="max_num_batched_tokens"):
        EngineConfig(**PLACES, max_num_seqs=32, block_size=16, max_num_batched_tokens=47)


def test_zero_means_what_suits_the_device() -> None:
    cpu, cuda = EngineConfig(**PLACES), EngineConfig(**PLACES, device="cuda")
    assert (cpu.block_size, cpu.max_num_batched_tokens, cpu.max_num_seqs, cpu.max_adapters_per_step) == (32, 512, 32, 8)
    assert (cuda.block_size, cuda.max_num_batched_tokens, cuda.max_adapters_per_step) == (16, 2048, 64)
    assert (cpu.adapter_pool_bytes, cuda.adapter_pool_bytes) == (256 << 20, 4 << 30)
    assert cuda.max_num_seqs == 0  # the memory decides
    assert EngineConfig(**PLACES, device="cuda", block_size=32).block_size == 32


def test_an_open_device_is_decided_once_and_what_it_cannot_do_is_refused_then() -> None:
    config = EngineConfig(**PLACES, device="auto", dtype="float16", gpu_memory_utilization=0.8)
    assert config.block_size == 0
    assert config.on_device("cuda").block_size == 16
    with pytest.raises(ValueError, match="dtype: 'float16'"):
        config.on_device("cpu")
    with pytest.raises(ValueError, match="gpu_memory_utilization"):
        EngineConfig(**PLACES, device="auto", gpu_memory_utilization=0.8).on_device("cpu")


def test_integer_weights_are_for_a_cpu() -> None:
    assert EngineConfig(**PLACES).quantization == "none"
    assert EngineConfig(**PLACES, quantization="int8").quantization == "int8"
    with pytest.raises(ValueError, match=r"quantization: 'int8'.*not on 'cuda'"):
        EngineConfig(**PLACES, device="cuda", quantization="int8")
    with pytest.raises(ValueError, match=r"quantization: 'int8'.*not on 'cuda'"):
        EngineConfig(**PLACES, device="auto", quantization="int8").on_device("cuda")


def test_swapping_is_allowed_where_there_is_room_to_swap_to() -> None:
    assert EngineConfig(**PLACES, preemption="swap", swap_space=1 << 20).preemption == "swap"


def test_plain_values_become_a_configuration_and_unknown_names_are_told() -> None:
    values = {name: str(value) for name, value in PLACES.items()}
    config = read_config(values | {"max_num_seqs": 4, "tenant_kv_share": 0.5})
    assert config.model_dir == Path("model")
    assert (config.max_num_seqs, config.tenant_kv_share) == (4, 0.5)
    with pytest.raises(ValueError, match="max_num_seq, swapspace"):
        read_config(values | {"swapspace": 1, "max_num_seq": 2})
    with pytest.raises(ValueError, match="endpoint"):
        read_config({name: value for name, value in values.items() if name != "endpoint"})
