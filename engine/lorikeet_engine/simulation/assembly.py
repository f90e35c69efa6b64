"""Builds the world that a workload describes: pools sized as on its device, and the real deciding side over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lorikeet_engine.cost import DeviceProfile, ModelCost, StepShape, kv_block_bytes
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.memory.adapters.eviction import ReloadCost
from lorikeet_engine.memory.adapters.residency import AdapterResidency
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.scheduling.limits import limits_of
from lorikeet_engine.scheduling.scheduler import Scheduler
from lorikeet_engine.simulation.report.recorder import Recorder
from lorikeet_engine.simulation.roofline_runner import RooflineRunner
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.simulation.static_batching import StaticRun, jobs_of, run_static
from lorikeet_engine.simulation.virtual_disk import VirtualClock, VirtualDisk
from lorikeet_engine.simulation.workload.adapter_catalogue import ITEMSIZE, AdapterCatalogue
from lorikeet_engine.simulation.workload.arrival import N_WORDS, Traffic
from lorikeet_engine.simulation.workload.description import EngineKnobs, Workload
from lorikeet_engine.simulation.workload.recorded_traffic import RecordedTraffic
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_engine.simulation.workload.tenant_traffic import TenantTraffic
from lorikeet_engine.simulation.world import World

ACTIVATION_BYTES_PER_TOKEN = 8  # of hidden and intermediate width, over the tensors that live at once


@dataclass(slots=True, kw_only=True)
class Simulation(World):
    """A world whose device and disk are arithmetic."""

    runner: RooflineRunner
    disk: VirtualDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A model on a device.

    Attributes:
        itemsize: bytes of one activation, and of a weight of adapters and KV.
        step_seconds: what a step's rows take; None = what the profile's roofline says.
    """

    spec: ModelSpec
    cost: ModelCost
    profile: DeviceProfile
    itemsize: int = ITEMSIZE
    step_seconds: Callable[[StepShape], float] | None = None


def hardware_of(model: str, device: str) -> Hardware:
    """By names or paths; raises DescriptionError where there is no such model or device."""
    spec = load_model(model)
    return Hardware(spec=spec, cost=ModelCost.of(spec, itemsize=ITEMSIZE), profile=load_device(device))


def build_world(workload: Workload, hardware: Hardware | None = None) -> Simulation:
    """Everything that one simulation needs, at time 0; on `hardware`, or on what the workload names.

    Raises:
        DescriptionError: a device, model or trace that is not there, or a model that does not fit its device.
    """
    hardware = hardware or hardware_of(workload.model, workload.device)
    spec, cost, profile, itemsize = hardware.spec, hardware.cost, hardware.profile, hardware.itemsize
    knobs = workload.engine
    catalogue = AdapterCatalogue(spec, itemsize)
    traffic = _traffic(workload, catalogue)
    block_bytes = kv_block_bytes(spec, block_size=knobs.block_size, itemsize=itemsize)
    clock = VirtualClock()
    disk = VirtualDisk(clock, catalogue.n_grains, catalogue.grain_bytes, profile.disk_bandwidth)
    ends_at: dict[str, int] = {}
    runner = RooflineRunner(
        cost=cost,
        profile=profile,
        adapter_grains=catalogue.n_grains,
        grain_bytes=catalogue.grain_bytes,
        block_bytes=block_bytes,
        eos=N_WORDS,
        ends_at=ends_at,
        itemsize=itemsize,
        step_seconds=hardware.step_seconds,
    )
    kv, residency = _pools(knobs, hardware, catalogue.grain_bytes)
    limits = limits_of(
        knobs,
        max_model_len=knobs.max_model_len,
        eos_token_ids=frozenset({N_WORDS}),
        vocab=max(spec.vocab, N_WORDS),  # what prompts are made of here, whatever the model knows
        cache_root=(spec.architecture, "simulated"),
        is_local_first=knobs.adapter_affinity,
    )
    scheduler = Scheduler(limits, kv, residency, cost=cost, profile=profile, itemsize=itemsize)
    loop = EngineLoop(scheduler=scheduler, kv=kv, residency=residency, loader=disk, runner=runner, cost=cost)
    return Simulation(
        loop=loop,
        runner=runner,
        disk=disk,
        clock=clock,
        traffic=traffic,
        recorder=Recorder(workload.slo),
        host_overhead_s=workload.host_overhead_s,
        ends_at=ends_at,
    )


def _pools(knobs: EngineKnobs, hardware: Hardware, grain_bytes: int) -> tuple[KvManager, AdapterResidency]:
    spec, profile = hardware.spec, hardware.profile
    block_bytes = kv_block_bytes(spec, block_size=knobs.block_size, itemsize=hardware.itemsize)
    kv = KvManager(
        n_blocks=kv_bytes(knobs, spec, hardware.cost, profile) // block_bytes + 1,  # one block is never handed out
        block_size=knobs.block_size,
        block_bytes=block_bytes,
        n_host_slots=knobs.swap_space // block_bytes,
        enable_prefix_caching=knobs.enable_prefix_caching,
    )
    residency = AdapterResidency(
        n_grains=knobs.adapter_pool_bytes // grain_bytes,
        grain_bytes=grain_bytes,
        host_bytes=knobs.host_adapter_cache_bytes,
        max_loading=knobs.max_adapters_per_step,
        policy=knobs.adapter_eviction,
        reload_cost=ReloadCost(1 / profile.host_bandwidth, 1 / profile.disk_bandwidth),
        n_prefix_blocks=kv.n_prefix_blocks,
    )
    return kv, residency


def run_in_static_batches(workload: Workload, batch_size: int, hardware: Hardware | None = None) -> StaticRun:
    """The workload's requests without the scheduler, to compare with; adapters and cached prefixes are left out."""
    hardware = hardware or hardware_of(workload.model, workload.device)
    jobs = jobs_of(_traffic(workload, AdapterCatalogue(hardware.spec)))
    return run_static(jobs, batch_size, hardware.cost, hardware.profile)


def _traffic(workload: Workload, catalogue: AdapterCatalogue) -> Traffic:
    return RecordedTraffic(workload, catalogue) if workload.trace else TenantTraffic(workload, catalogue)


def kv_bytes(knobs: EngineKnobs, spec: ModelSpec, cost: ModelCost, profile: DeviceProfile) -> int:
    """The KV pool: as asked, or what weights, arena and activations leave of the device."""
    if knobs.kv_cache_bytes:
        return knobs.kv_cache_bytes
    weights = cost.weights_bytes + (0 if spec.tied_embeddings else spec.vocab * spec.hidden * ITEMSIZE)
    width = spec.hidden + spec.intermediate
    activations = ACTIVATION_BYTES_PER_TOKEN * width * knobs.max_num_batched_tokens
    left = int(profile.memory_bytes * knobs.gpu_memory_utilization) - weights - knobs.adapter_pool_bytes - activations
    if left < kv_block_bytes(spec, block_size=knobs.block_size, itemsize=ITEMSIZE):
        raise DescriptionError(f"weights and arena leave no memory of {profile.name} for a KV pool")
    return left
