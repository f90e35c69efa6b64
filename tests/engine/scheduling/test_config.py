"""Knobs of the engine: what is refused at start, and what the scheduler is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lorikeet_engine.config import EngineConfig, read_config

PLACES: dict[str, Any] = {
    "model_dir": Path("model"),
    "model_name": "model",
    "store_dir": Path("store"),
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
        ("max_num_seqs", 0),
        ("max_adapters_per_step", 0),
        ("max_queued_requests", 0),
        ("max_queued_tokens", 0),
        ("adapter_pool_bytes", 0),
        ("host_adapter_cache_bytes", 0),
        ("swap_space", -1),
        ("kv_cache_bytes", -1),
        ("ttft_deadline", -0.5),
        ("ttft_deadline", float("nan")),
        ("ttft_deadline", float("inf")),
        ("swap_space", float("nan")),
        ("tenant_queue_share", float("inf")),
        ("block_size", 24),
        ("block_size", 0),
        ("preemption", "drop"),
        ("preemption", "swap"),
        ("tenant_queue_share", 0.0),
        ("tenant_seat_share", 1.5),
        ("tenant_kv_share", -0.1),
        ("tenant_arena_share", float("nan")),
        ("dtype", "float16"),
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
