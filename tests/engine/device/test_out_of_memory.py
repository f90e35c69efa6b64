"""O3: an engine without enough memory prints its table and three ways out, and each way that has a value fits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lorikeet_engine import build
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import spec_from_config
from lorikeet_engine.sizing.memory_budget import MemoryBudget, plan_memory
from tests.support.tiny_models import CONFIGS, save_model

MIB, GIB = 1 << 20, 1 << 30
SPEC = spec_from_config({**CONFIGS["llama"].to_dict(), "architectures": ["LlamaForCausalLM"]}, eos=2)
WEIGHTS = 100_000_000
PLACE: dict[str, Any] = {"model_dir": Path("m"), "model_name": "tiny", "store_url": "s", "endpoint": "ipc://e"}


def on_cpu(available: int, **knobs: Any) -> MemoryBudget:
    config = EngineConfig(**PLACE, **knobs)
    return plan_memory(config, SPEC, itemsize=2, weights_bytes=WEIGHTS, available_bytes=available)


def on_gpu(available: int, **knobs: Any) -> MemoryBudget:
    config = EngineConfig(**PLACE, device="cuda", **knobs)
    return plan_memory(config, SPEC, itemsize=2, weights_bytes=WEIGHTS, available_bytes=available, host_bytes=4 * GIB)


Plan = Callable[..., MemoryBudget]
TOO_LITTLE: list[tuple[Plan, int, dict[str, Any]]] = [
    (on_cpu, GIB, {"adapter_pool_bytes": GIB}),
    (on_cpu, GIB, {"host_adapter_cache_bytes": 900 * MIB}),
    (on_cpu, 2 * GIB, {"swap_space": 2 * GIB}),
    (on_cpu, 4 * GIB, {"kv_cache_bytes": 8 * GIB}),
    (on_cpu, 4 * GIB, {"kv_cache_bytes": 20_000}),
    (on_gpu, GIB, {}),
    (on_gpu, 5 * GIB, {"kv_cache_bytes": 2 * GIB}),
    (on_gpu, 16 * GIB, {"kv_cache_bytes": 40_000}),
]


def message_of(plan: Plan, available: int, knobs: dict[str, Any]) -> str:
    with pytest.raises(UnsupportedModel) as refused:
        plan(available, **knobs)
    return refused.value.message


def ways_in(message: str) -> list[str]:
    return re.findall(r"^  \d\. (.+)$", message, re.MULTILINE)


@pytest.mark.parametrize(("plan", "available", "knobs"), TOO_LITTLE)
def test_o3_too_little_memory_is_told_with_the_table_and_three_ways_out(
    plan: Plan, available: int, knobs: dict[str, Any]
) -> None:
    message = message_of(plan, available, knobs)
    for row in ("weights", "adapter arena", "KV pool", "activations", "reserve", "left", "available"):
        assert re.search(rf"^{row} +-?[0-9.]+ MiB$", message, re.MULTILINE), row
    assert len(ways_in(message)) == 3


@pytest.mark.parametrize(("plan", "available", "knobs"), TOO_LITTLE)
def test_o3_whatever_value_a_way_out_names_fits(plan: Plan, available: int, knobs: dict[str, Any]) -> None:
    ways = ways_in(message_of(plan, available, knobs))
    named = [{name: int(value) for name, value in re.findall(r"(\w+_\w+) to (\d+)", way)} for way in ways]
    largest = re.findall(r"up to (\d+)", ways[0])
    tried = [*filter(None, named), *({"kv_cache_bytes": int(value)} for value in largest)]
    for values in tried:
        budget = plan(available, **{**knobs, **values})
        assert budget.left_bytes >= 0
        assert sum(n_bytes for _, n_bytes in budget.rows) == available
    assert tried


def test_o3_a_gpu_that_somebody_else_holds_is_said_to_be_one() -> None:
    third = ways_in(message_of(on_gpu, GIB, {"gpu_memory_utilization": 0.5}))[2]
    assert re.fullmatch(r"end what else holds the GPU, or raise gpu_memory_utilization above 0\.5: .* missing", third)


def test_o3_a_pool_of_nothing_has_no_negative_blocks() -> None:
    assert "; 0 blocks: 0.0 such requests" in message_of(on_gpu, GIB, {})


@pytest.mark.slow
def test_o3_the_engines_process_prints_it_and_ends_with_two(tmp_path: Path) -> None:
    model = save_model("llama", tmp_path / "model")
    config = {
        "model_dir": str(model),
        "model_name": "tiny",
        "store_url": str(tmp_path),
        "endpoint": f"ipc://{tmp_path}/e",
        "adapter_pool_bytes": 1 << 50,
    }
    file = tmp_path / "engine.json"
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "lorikeet_engine", "--config", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "bytes short of memory" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [f"  {i}. " in ended.stderr for i in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_o3_memory_that_somebody_took_meanwhile_is_told_likewise(
    error: RuntimeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model("llama", tmp_path / "model")
    config = EngineConfig(
        **PLACE | {"model_dir": model, "store_url": str(tmp_path)}, dtype="float32", kv_cache_bytes=MIB, threads=1
    )

    def takes_too_much(**_: Any) -> None:
        raise error

    monkeypatch.setattr(build, "ModelRunner", takes_too_much)
    with pytest.raises(UnsupportedModel) as refused:
        build.build_engine(config)
    assert "adapter arena" in refused.value.message
    assert len(ways_in(refused.value.message)) == 3
    monkeypatch.setattr(build, "ModelRunner", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build.build_engine(config)
