"""Composition root of the engine: the only place that chooses a device, sizes the pools and ties the parts together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.source import AdapterSource
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.execution.memory_budget import MemoryBudget, available_memory, plan_memory
from lorikeet_engine.execution.runner import ModelRunner, resolve_dtype, set_threads
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.lora.loader import AdapterLoader
from lorikeet_engine.memory.adapter_residency import AdapterResidency
from lorikeet_engine.memory.kv_manager import KvManager
from lorikeet_engine.model_spec import ModelSpec, load_model_spec
from lorikeet_engine.models.weights import load_weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.scheduling.scheduler import Scheduler, SchedulerLimits


@dataclass(frozen=True, slots=True)
class Engine:
    """A built engine: the loop to step, and what there is to say about it."""

    loop: EngineLoop
    runner: ModelRunner
    loader: AdapterLoader
    spec: ModelSpec
    budget: MemoryBudget
    dtype: str
    model_digest: str

    def close(self) -> None:
        self.loader.close()


def build_engine(config: EngineConfig) -> Engine:
    """Load the model and size everything.

    Raises:
        UnsupportedModel: the model is not covered, or the memory does not suffice.
    """
    set_threads(config.threads)
    spec = load_model_spec(config.model_dir)
    dtype = resolve_dtype(config.dtype)
    available_bytes = available_memory()
    ops = CpuOps()
    weights = load_weights(config.model_dir, spec, dtype=dtype, ops=ops)
    budget = plan_memory(
        config, spec, itemsize=dtype.itemsize, weights_bytes=weights.nbytes, available_bytes=available_bytes
    )
    runner = ModelRunner(config=config, spec=spec, ops=ops, weights=weights, budget=budget)
    table = spec.module_table(config.model_name)
    loader = AdapterLoader(AdapterSource(LocalBlobStore(config.store_dir)), table, dtype, config.max_rank)
    kv = KvManager(n_blocks=budget.n_blocks, block_size=config.block_size, block_bytes=budget.block_bytes)
    residency = AdapterResidency(
        n_grains=runner.arena.n_grains,
        grain_bytes=GRAIN * dtype.itemsize,
        max_loading=config.max_adapters_per_step,
    )
    limits = SchedulerLimits(
        max_model_len=budget.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_adapters_per_step=config.max_adapters_per_step,
        max_queued_requests=config.max_queued_requests,
        eos_token_ids=frozenset(spec.eos_token_ids),
        vocab=spec.vocab,
    )
    loop = EngineLoop(
        scheduler=Scheduler(limits, kv, residency), kv=kv, residency=residency, loader=loader, runner=runner
    )
    name = str(dtype).removeprefix("torch.")
    return Engine(loop, runner, loader, spec, budget, name, digest_of_model(config.model_dir))


def digest_of_model(model_dir: Path) -> str:
    """SHA-256 over the configuration and the weight files, in the order of their names."""
    digest = hashlib.sha256()
    for path in [model_dir / "config.json", *sorted(model_dir.glob("*.safetensors"))]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
