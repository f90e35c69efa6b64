"""What an engine was started with, and what it made of that, as one record for whoever plans or explains.

Names every knob that an operator may set; where the model, the store and the sockets are is nobody's business.
"""

from __future__ import annotations

from dataclasses import fields

from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import DeviceProfile, ModelCost
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.sizing.memory_budget import GPU_SHARE, MemoryBudget
from lorikeet_engine.stats import EngineDesign

PLACES = frozenset({
    "model_dir", "model_name", "store_url", "store_endpoint", "store_region", "store_allow_http", "endpoint",
    "socket_key_file", "outbox_dir", "health_host", "health_port",
})  # fmt: skip


def describe(
    config: EngineConfig,
    budget: MemoryBudget,
    *,
    dtype: str,
    itemsize: int,
    model: ModelSpec,
    cost: ModelCost,
    device: DeviceProfile,
) -> EngineDesign:
    """The design of an engine with these settings, which name its device, and this memory table."""
    knobs: dict[str, int | float | str | bool] = {
        field.name: getattr(config, field.name) for field in fields(config) if field.name not in PLACES
    }
    knobs |= {"max_model_len": budget.max_model_len, "max_num_seqs": budget.max_num_seqs}
    knobs |= {"dtype": dtype, "kv_cache_bytes": budget.kv_bytes}
    if config.device == "cuda":
        knobs["gpu_memory_utilization"] = config.gpu_memory_utilization or GPU_SHARE
    return EngineDesign(
        knobs=knobs,
        memory=list(budget.rows),
        available_bytes=budget.available_bytes,
        n_blocks=budget.n_blocks - 1,  # the first one is never handed out
        block_size=budget.block_size,
        block_bytes=budget.block_bytes,
        max_model_len=budget.max_model_len,
        max_num_seqs=budget.max_num_seqs,
        itemsize=itemsize,
        model=model,
        cost=cost,
        device=device,
    )
