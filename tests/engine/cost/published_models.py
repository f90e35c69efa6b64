"""Models and devices that the published figures are about."""

from __future__ import annotations

import json

from lorikeet_engine.cost import DEVICES, DeviceProfile, ModelCost
from lorikeet_engine.model_spec import ModelSpec, spec_from_config

MODELS = DEVICES.parent / "models"
MIB, GIB = 1 << 20, 1 << 30
GB, TFLOP = 1e9, 1e12


def published(name: str) -> ModelSpec:
    return spec_from_config(json.loads((MODELS / f"{name}.json").read_text()), eos=None)


QWEN25_7B = published("qwen2.5-7b")
QWEN3_8B = published("qwen3-8b")
LLAMA3_8B = published("llama-3-8b")
QWEN25_COST, QWEN3_COST, LLAMA3_COST = (ModelCost.of(spec) for spec in (QWEN25_7B, QWEN3_8B, LLAMA3_8B))
QWEN25_POOL_TOKENS = 86_864  # what the engine of the published experiment logged

RTX_4090 = DeviceProfile(
    name="rtx4090",
    peak_flops=165.2 * TFLOP,
    peak_bandwidth=1008 * GB,
    memory_bytes=24 * GIB,
    host_bandwidth=25 * GB,
    disk_bandwidth=3 * GB,
    mfu_prefill=0.88,
    mbu=0.92,
    step_overhead_s=0.001,
)
H200 = DeviceProfile(
    name="h200 as measured",
    peak_flops=780 * TFLOP,
    peak_bandwidth=4300 * GB,
    memory_bytes=139 * GIB,
    host_bandwidth=50 * GB,
    disk_bandwidth=3 * GB,
    mfu_prefill=395 / 780,
    mbu=0.9,
    step_overhead_s=0.0,
)
