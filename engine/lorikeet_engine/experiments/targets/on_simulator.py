"""Setups on a device that is arithmetic, under a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lorikeet_engine.experiments.record import Machine, PointRecord, Source
from lorikeet_engine.experiments.scenarios.setup import Setup
from lorikeet_engine.experiments.targets.collector import Collector
from lorikeet_engine.experiments.targets.target import closed_loop, pool_tokens, unlimited
from lorikeet_engine.simulation.assembly import Hardware, build_world, hardware_of, run_in_static_batches
from lorikeet_engine.simulation.static_batching import StaticRun
from lorikeet_engine.simulation.workload.description import EngineKnobs, Workload
from lorikeet_engine.simulation.workload.strict_records import read_record


@dataclass(frozen=True, slots=True)
class SimulatorTarget:
    """A model on a device, by their names."""

    model: str
    device: str
    hardware: Hardware

    @property
    def source(self) -> Source:
        return "simulator"

    @property
    def machine(self) -> Machine:
        cost, profile = self.hardware.cost, self.hardware.profile
        return Machine(
            model=self.model,
            device=self.device,
            peak_flops=profile.peak_flops,
            peak_bandwidth=profile.peak_bandwidth,
            kv_bytes_per_token=cost.kv_bytes_per_token,
            weights_bytes=cost.weights_bytes,
        )

    def run(self, setup: Setup) -> PointRecord:
        world = build_world(self._workload(setup), self.hardware)
        collector = Collector(world)
        world.run()
        return collector.point(setup)

    def run_static(self, setup: Setup, batch_size: int) -> StaticRun:
        """The same requests in static batches, to compare with."""
        return run_in_static_batches(self._workload(setup), batch_size, self.hardware)

    def _workload(self, setup: Setup) -> Workload:
        knobs = read_record(EngineKnobs, unlimited(setup.load) | dict(setup.engine), "engine")
        if setup.pool_tokens:
            tokens = pool_tokens(setup, knobs.block_size)
            knobs = replace(knobs, kv_cache_bytes=tokens * self.hardware.cost.kv_bytes_per_token)
        return closed_loop("sweep", setup.load, knobs, model=self.model, device=self.device)


def simulator_target(model: str, device: str) -> SimulatorTarget:
    """Raises DescriptionError where there is no such model or device."""
    return SimulatorTarget(model, device, hardware_of(model, device))
