"""A running server as the target of a sweep: what is sent can be varied, its own settings cannot."""

from __future__ import annotations

from dataclasses import replace

from lorikeet_engine.experiments.record import Machine, PointRecord, Source
from lorikeet_engine.experiments.scenarios.setup import Setup
from lorikeet_engine.simulation.workload.description import SharedPrefixes
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.description import Load, LoadGroup
from lorikeet_platform.tools.bench.load.run import Run, run_load
from lorikeet_platform.tools.bench.load.target import Target


class ServerTarget:
    """Implements `lorikeet_engine.experiments.targets.target.Target`; answers are asked for in their full length.

    `runs` are the points so far, with what the server said beside serving.
    """

    source: Source = "server"

    def __init__(self, target: Target, machine: Machine) -> None:
        self.machine = machine
        self.runs: list[Run] = []
        self._target = replace(target, ignore_eos=True)

    def run(self, setup: Setup) -> PointRecord:
        """Raises DescriptionError for a setting of the engine, and what `run_load` raises."""
        settings = [*setup.engine, *(["pool_tokens"] if setup.pool_tokens else [])]
        if settings:
            raise DescriptionError(f"{settings[0]} is the server's own setting; a sweep over a running one varies load")
        self.runs.append(run_load(self._target, _load_of(setup), setup=setup.values()))
        return self.runs[-1].point


def _load_of(setup: Setup) -> Load:
    load = setup.load
    group = LoadGroup(
        name="bench",
        arrivals=Arrivals(kind="closed", concurrency=load.concurrency, think_s=load.pause_s),
        prompt=Lengths(value=load.prompt_tokens),
        output=Lengths(value=load.output_tokens),
        shared_prefixes=SharedPrefixes(tokens=load.shared_tokens) if load.shared_tokens else None,
    )
    # Points must not find each other's prompts in the server's prefix cache: equal seeds begin with equal words.
    seed = load.seed + (load.prompt_tokens << 20) + (load.concurrency << 8)
    return Load(name="bench", seed=seed, n_requests=load.concurrency * load.requests_per_client, tenants=(group,))
