"""Composition root of the engine: the only place that chooses a device, sizes the pools and ties the parts together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.source import AdapterSource
from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import DEVICES, ModelCost, load_profile
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.execution.device import resolve_dtype, set_threads
from lorikeet_engine.execution.memory_budget import MemoryBudget, available_memory, plan_memory
from lorikeet_engine.execution.profiled_ops import profiled
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.lora.loader import AdapterLoader
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.model_spec import ModelSpec, load_model_spec
from lorikeet_engine.models.weights import Weights, load_weights
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.native.int8 import Int8CpuOps
from lorikeet_engine.ops.native.library import load_library
from lorikeet_engine.ops.native.ops import NativeCpuOps, covers
from lorikeet_engine.profiling.step_timeline import StepTimeline
from lorikeet_engine.profiling.timeline import NOT_PROFILED
from lorikeet_engine.scheduling.limits import limits_of
from lorikeet_engine.scheduling.scheduler import Scheduler

PROFILE_OF_DEVICE = {"cpu": "cpu2.json"}  # where the step-time model starts; it learns the rest from measured steps


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


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A base model on its device. Nothing writes to it, so engines in one process may share it.

    Attributes:
        available_bytes: memory that there was before it was loaded.
        digest: see `digest_of_model`.
        quantization: as in `EngineConfig`.
    """

    spec: ModelSpec
    ops: Ops
    weights: Weights
    available_bytes: int
    digest: str
    quantization: str


def load_model(model_dir: Path, dtype_name: str, quantization: str = "none") -> LoadedModel:
    """Read a model's configuration and weights.

    Raises:
        UnsupportedModel: the model, or the dtype or quantization on this device, is not covered.
    """
    spec, dtype = load_model_spec(model_dir), resolve_dtype(dtype_name)
    ops = choose_ops(spec, dtype, quantization)
    available_bytes = available_memory()
    packed_from = torch.float32 if quantization == "int8" else dtype
    weights = load_weights(model_dir, spec, dtype=dtype, ops=ops, packed_from=packed_from)
    return LoadedModel(spec, ops, weights, available_bytes, digest_of_model(model_dir), quantization)


def choose_ops(spec: ModelSpec, dtype: torch.dtype, quantization: str) -> Ops:
    """The native ops where they can be compiled and know the model's widths, torch's otherwise.

    Raises:
        UnsupportedModel: 8-bit weights without native ops.
    """
    are_widths_known = covers(spec.hidden, spec.intermediate, spec.head_dim)
    library = load_library() if are_widths_known else None
    if quantization == "int8":
        if library is None:
            lacking = "a C++ compiler on this machine" if are_widths_known else "widths that are multiples of 16"
            raise UnsupportedModel(f"quantization int8: its kernels need {lacking}")
        return Int8CpuOps(library, dtype)
    return NativeCpuOps(library) if library else CpuOps()


def build_engine(
    config: EngineConfig, model: LoadedModel | None = None, *, timeline: StepTimeline | None = None
) -> Engine:
    """Load the model, unless one is given, and size everything; with a `timeline`, time every op.

    Raises:
        UnsupportedModel: the model is not covered, or the memory does not suffice.
    """
    set_threads(config.threads)
    model = model or load_model(config.model_dir, config.dtype, config.quantization)
    if model.quantization != config.quantization:
        raise ValueError(f"quantization: {config.quantization!r}, but the model was loaded with {model.quantization!r}")
    spec, weights, dtype = model.spec, model.weights, model.weights.dtype
    budget = plan_memory(
        config, spec, itemsize=dtype.itemsize, weights_bytes=weights.nbytes, available_bytes=model.available_bytes
    )
    ops = profiled(model.ops, weights, timeline) if timeline else model.ops
    runner = ModelRunner(
        config=config, spec=spec, ops=ops, weights=weights, budget=budget, timeline=timeline or NOT_PROFILED
    )
    table = spec.module_table(config.model_name)
    loader = AdapterLoader(AdapterSource(LocalBlobStore(config.store_dir)), table, dtype, config.max_rank)
    kv = KvManager(
        n_blocks=budget.n_blocks,
        block_size=config.block_size,
        block_bytes=budget.block_bytes,
        n_host_slots=budget.n_host_slots,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    residency = AdapterResidency(
        n_grains=runner.arena.n_grains,
        grain_bytes=GRAIN * dtype.itemsize,
        host_bytes=config.host_adapter_cache_bytes,
        max_loading=config.max_adapters_per_step,
        n_prefix_blocks=kv.n_prefix_blocks,
    )
    name = str(dtype).removeprefix("torch.")
    cost = ModelCost.of(spec, itemsize=dtype.itemsize, int8_weights=model.quantization == "int8")
    limits = limits_of(
        config,
        max_model_len=budget.max_model_len,
        eos_token_ids=frozenset(spec.eos_token_ids),
        vocab=spec.vocab,
        cache_root=(f"{model.digest} {model.quantization}", name),
    )
    profile = load_profile(DEVICES / PROFILE_OF_DEVICE[config.device])
    scheduler = Scheduler(limits, kv, residency, cost=cost, profile=profile, itemsize=dtype.itemsize)
    loop = EngineLoop(
        scheduler=scheduler,
        kv=kv,
        residency=residency,
        loader=loader,
        runner=runner,
        cost=cost,
        timeline=timeline or NOT_PROFILED,
    )
    return Engine(loop, runner, loader, spec, budget, name, model.digest)


def digest_of_model(model_dir: Path) -> str:
    """SHA-256 over the configuration and the weight files, in the order of their names."""
    digest = hashlib.sha256()
    for path in [model_dir / "config.json", *sorted(model_dir.glob("*.safetensors"))]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
