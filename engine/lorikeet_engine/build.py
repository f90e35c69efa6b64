"""Composition root of the engine: the only place that chooses a device, sizes the pools and ties the parts together."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.source import AdapterSource
from lorikeet_adapters.store.opening import StoreAddress, open_store
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.cost import DEVICES, DeviceProfile, ModelCost, load_profile
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.execution.machine.device import GpuMemory, gpu_memory, resolve_device, resolve_dtype, set_threads
from lorikeet_engine.execution.machine.host_memory import available_memory
from lorikeet_engine.execution.placement import ON_HOST, Placement, beside_the_host
from lorikeet_engine.execution.profiled_ops import profiled
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.execution.streams.lanes import CudaLanes
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.lora.loader import AdapterLoader
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.model_spec import ModelSpec, load_model_spec
from lorikeet_engine.models.served_linears import ServedLinears
from lorikeet_engine.models.weights import Weights, load_weights
from lorikeet_engine.observing.observatory import Observatory
from lorikeet_engine.observing.observer import Observer
from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.interface import Ops
from lorikeet_engine.ops.native.int8 import Int8CpuOps
from lorikeet_engine.ops.native.library import NoNativeOps, load_library
from lorikeet_engine.ops.native.ops import NativeCpuOps, covers
from lorikeet_engine.profiling.step_timeline import StepTimeline
from lorikeet_engine.profiling.timeline import NOT_PROFILED
from lorikeet_engine.scheduling.limits import SchedulerLimits, limits_of
from lorikeet_engine.scheduling.scheduler import Scheduler
from lorikeet_engine.sizing.memory_budget import GPU_MAX_SEQS, GPU_SHARE, MemoryBudget, plan_memory
from lorikeet_engine.sizing.shortage import ran_out
from lorikeet_engine.sizing.step_memory import few_numbers

# Where the step-time model starts; it learns the rest from measured steps. Of GPUs, the first whose name fits.
CPU_PROFILE = "cpu2.json"
GPU_PROFILES = (("4090", "rtx4090.json"), ("", "h200.json"))
# How long a thread may keep the interpreter from one that asks for it. A step asks hundreds of times, and Python's 5 ms
# made a step beside a load last 30 ms longer now and then (benchmarks/adapter_cold_start.py).
SWITCH_INTERVAL_S = 0.0005


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """A built engine: the loop to step, and what there is to say about it.

    Attributes:
        config: with every automatic value decided.
        itemsize: bytes of a number in `dtype`.
        cost, profile: the model's and the device's constants.
    """

    config: EngineConfig
    loop: EngineLoop
    runner: ModelRunner
    loader: AdapterLoader
    spec: ModelSpec
    budget: MemoryBudget
    dtype: str
    itemsize: int
    model_digest: str
    cost: ModelCost
    profile: DeviceProfile

    def close(self) -> None:
        self.loader.close()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A base model on its device. Nothing writes to it, so engines in one process may share it.

    Attributes:
        available_bytes: memory of the host that there was before it was loaded.
        gpu: memory of the GPU that there was before it was loaded, None on a CPU.
        digest: see `digest_of_model`.
        quantization: as in `EngineConfig`.
    """

    spec: ModelSpec
    ops: Ops
    weights: Weights
    available_bytes: int
    digest: str
    quantization: str
    gpu: GpuMemory | None = None

    @property
    def device(self) -> str:
        return "cpu" if self.gpu is None else "cuda"


def load_model(model_dir: Path, dtype_name: str, quantization: str = "none", device: str = "cpu") -> LoadedModel:
    """Read a model's configuration and weights; `device` is "cpu" or "cuda".

    Raises:
        UnsupportedModel: the model, or the dtype or quantization on this device, is not covered.
    """
    if quantization == "int8" and device != "cpu":
        raise UnsupportedModel(f"quantization int8: computed on device cpu only, not on {device}")
    spec, dtype = load_model_spec(model_dir), resolve_dtype(dtype_name, device)
    gpu = gpu_memory() if device == "cuda" else None
    if gpu is None:
        ops = choose_ops(spec, dtype, quantization)
    else:
        ops = gpu_backend().CudaOps(device=device, max_tokens=1, max_rank=1)
    available_bytes = available_memory()
    packed_from = torch.float32 if quantization == "int8" else dtype
    weights = load_weights(model_dir, spec, dtype=dtype, ops=ops, packed_from=packed_from, device=device)
    return LoadedModel(spec, ops, weights, available_bytes, digest_of_model(model_dir), quantization, gpu)


def decide_device(config: EngineConfig) -> EngineConfig:
    """The settings for the device that there is.

    Raises:
        UnsupportedModel: a GPU was asked for and there is none, or its compiler is not installed.
        ValueError: a setting is not for this device.
    """
    return config.on_device(resolve_device(config.device))


def divide_memory(config: EngineConfig, model: LoadedModel) -> MemoryBudget:
    """The memory table of an engine with these settings over this model."""
    itemsize, nbytes = model.weights.dtype.itemsize, model.weights.nbytes
    if model.gpu is None:
        return plan_memory(
            config, model.spec, itemsize=itemsize, weights_bytes=nbytes, available_bytes=model.available_bytes
        )
    return plan_memory(
        config,
        model.spec,
        itemsize=itemsize,
        weights_bytes=nbytes,
        available_bytes=model.gpu.allowed(config.gpu_memory_utilization or GPU_SHARE),
        host_bytes=model.available_bytes,
        recorded_rows=few_numbers(config.max_num_seqs or GPU_MAX_SEQS),
    )


def serving_ops(config: EngineConfig, model: LoadedModel) -> Ops:
    """The model's ops, on a GPU with room for the steps that these settings allow."""
    if model.gpu is None:
        return model.ops
    ops: Ops = gpu_backend().CudaOps(
        device=model.device, max_tokens=config.max_num_batched_tokens, max_rank=config.max_rank
    )
    return ops


def gpu_backend() -> Any:
    """The module `ops.cuda`, imported where a GPU serves: it needs Triton, which not every system has.

    Raises:
        UnsupportedModel: this one has not.
    """
    try:
        return import_module("lorikeet_engine.ops.cuda")
    except ImportError as error:
        raise UnsupportedModel(f"device cuda: {error}") from error


def choose_ops(spec: ModelSpec, dtype: torch.dtype, quantization: str) -> Ops:
    """The native ops where they can be compiled and know the model's widths, torch's otherwise.

    Raises:
        UnsupportedModel: 8-bit weights without native ops.
    """
    try:
        if not covers(spec.hidden, spec.intermediate, spec.head_dim):
            raise NoNativeOps("the model has widths that are no multiples of 16")
        library = load_library()
        return Int8CpuOps(library, dtype) if quantization == "int8" else NativeCpuOps(library)
    except (NoNativeOps, OSError) as error:  # the latter where no address space is left for a step's activations
        if quantization == "int8":
            raise UnsupportedModel(f"quantization int8: no native CPU ops: {error}") from error
        log.info("no native CPU ops, torch's serve: %s", error)
        return CpuOps()


def build_engine(
    config: EngineConfig,
    model: LoadedModel | None = None,
    *,
    placement: Placement | None = None,
    timeline: StepTimeline | None = None,
    around: Callable[[ModelRunner], Any] | None = None,
    observer: Observer | None = None,
) -> Engine:
    """Load the model, unless one is given, and size everything; with a `timeline`, time every op.

    `placement`: how the runner works with the device; unless given, as the device wants it. `around`: makes what the
    loop drives in the runner's place, to watch the steps. `observer`: keeps the figures; an `Observatory` unless given.

    Raises:
        UnsupportedModel: the model is not covered, or the memory does not suffice.
    """
    config = decide_device(config)
    config = replace(config, threads=set_threads(config.threads))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    model = model or load_model(config.model_dir, config.dtype, config.quantization, config.device)
    _check_same(config, model)
    spec, dtype, is_gpu = model.spec, model.weights.dtype, model.gpu is not None
    budget = divide_memory(config, model)
    config = replace(config, max_num_seqs=budget.max_num_seqs)
    placement = placement or _placement(config.device)
    overlaps = placement.lanes.is_asynchronous and timeline is None
    runner = _build_runner(config, model, budget, placement, timeline)
    table, source = spec.module_table(config.model_name), AdapterSource(open_store(_store_address(config)))
    base = ServedLinears(ops=model.ops, weights=model.weights, table=table)
    loader = AdapterLoader(source, table, dtype, config.max_rank, base=base, pins_memory=is_gpu)
    kv, residency = _build_pools(config, budget, n_grains=runner.arena.n_grains, grain_bytes=GRAIN * dtype.itemsize)
    name = str(dtype).removeprefix("torch.")
    cost = ModelCost.of(spec, itemsize=dtype.itemsize, int8_weights=model.quantization == "int8")
    limits = _limits(config, model, budget, name)
    profile = profile_of(config.device)
    scheduler = Scheduler(limits, kv, residency, cost=cost, profile=profile, itemsize=dtype.itemsize)
    observer = observer or Observatory(tenants=scheduler.tenants, itemsize=dtype.itemsize)
    driven = around(runner) if around else runner
    loop = EngineLoop(
        scheduler=scheduler,
        kv=kv,
        residency=residency,
        loader=loader,
        runner=driven,
        cost=cost,
        launcher=driven if overlaps else None,
        timeline=timeline or NOT_PROFILED,
        observer=observer,
    )
    return Engine(
        config, loop, runner, loader, spec, budget, name, dtype.itemsize, model.digest, cost=cost, profile=profile
    )


def _limits(config: EngineConfig, model: LoadedModel, budget: MemoryBudget, dtype: str) -> SchedulerLimits:
    return limits_of(
        config,
        max_model_len=budget.max_model_len,
        eos_token_ids=frozenset(model.spec.eos_token_ids),
        vocab=model.spec.vocab,
        cache_root=(f"{model.digest} {model.quantization}", dtype),
    )


def _store_address(config: EngineConfig) -> StoreAddress:
    return StoreAddress(config.store_url, config.store_endpoint, config.store_region, config.store_allow_http)


def _build_runner(
    config: EngineConfig,
    model: LoadedModel,
    budget: MemoryBudget,
    placement: Placement,
    timeline: StepTimeline | None,
) -> ModelRunner:
    """With every step recorded that will be, on a GPU."""
    ops = serving_ops(config, model)
    try:
        runner = ModelRunner(
            config=config,
            spec=model.spec,
            ops=profiled(ops, model.weights, timeline) if timeline else ops,
            weights=model.weights,
            budget=budget,
            placement=placement,
            timeline=timeline or NOT_PROFILED,
        )
        if model.gpu is not None and timeline is None:
            runner.warm_up()
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        share = None if model.gpu is None else config.gpu_memory_utilization or GPU_SHARE
        told = ran_out(budget.table(), kv_bytes=budget.kv_bytes, block_bytes=budget.block_bytes, gpu_share=share)
        raise UnsupportedModel(told) from error
    return runner


def _is_out_of_memory(error: RuntimeError) -> bool:
    """On a CPU torch has no class of its own for it."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _build_pools(
    config: EngineConfig, budget: MemoryBudget, *, n_grains: int, grain_bytes: int
) -> tuple[KvManager, AdapterResidency]:
    kv = KvManager(
        n_blocks=budget.n_blocks,
        block_size=config.block_size,
        block_bytes=budget.block_bytes,
        n_host_slots=budget.n_host_slots,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    residency = AdapterResidency(
        n_grains=n_grains,
        grain_bytes=grain_bytes,
        host_bytes=config.host_adapter_cache_bytes,
        max_loading=config.max_adapters_per_step,
        n_prefix_blocks=kv.n_prefix_blocks,
    )
    return kv, residency


def _placement(device: str) -> Placement:
    return ON_HOST if device == "cpu" else beside_the_host(device, CudaLanes(), gpu_backend().PageMover)


def _check_same(config: EngineConfig, model: LoadedModel) -> None:
    for name, wanted, found in (
        ("quantization", config.quantization, model.quantization),
        ("device", config.device, model.device),
    ):
        if wanted != found:
            raise ValueError(f"{name}: {wanted!r}, but the model was loaded with {found!r}")


def profile_of(device: str) -> DeviceProfile:
    """The constants that an engine on this device begins with."""
    if device == "cpu":
        return load_profile(DEVICES / CPU_PROFILE)
    gpu = torch.cuda.get_device_name()
    return load_profile(DEVICES / next(file for part, file in GPU_PROFILES if part in gpu))


def digest_of_model(model_dir: Path) -> str:
    """SHA-256 over the configuration and the weight files, in the order of their names."""
    digest = hashlib.sha256()
    for path in [model_dir / "config.json", *sorted(model_dir.glob("*.safetensors"))]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
