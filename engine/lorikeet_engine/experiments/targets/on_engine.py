"""Setups on a real engine in this process: it computes, and the world's clock moves by what each step really took.

Nobody waits for a client: a pause between two requests passes in no time, as does everything else in which nothing is
computed. Needs torch.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lorikeet_engine.build import Engine, LoadedModel, build_engine, decide_device, load_model, profile_of
from lorikeet_engine.config import EngineConfig, read_config
from lorikeet_engine.cost import ModelCost, kv_bytes_per_token
from lorikeet_engine.errors import EngineError, UnsupportedModel
from lorikeet_engine.execution.machine.device import set_threads
from lorikeet_engine.execution.runner import ModelRunner
from lorikeet_engine.experiments.record import Machine, PointRecord, Source
from lorikeet_engine.experiments.scenarios.setup import Load, Setup
from lorikeet_engine.experiments.targets.collector import Collector
from lorikeet_engine.experiments.targets.target import TENANT, closed_loop, pool_tokens, unlimited
from lorikeet_engine.scheduling.plan import SamplingParams, StepPlan, StepResult
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.simulation.report.recorder import Recorder
from lorikeet_engine.simulation.virtual_disk import VirtualClock
from lorikeet_engine.simulation.workload.adapter_catalogue import AdapterCatalogue
from lorikeet_engine.simulation.workload.arrival import N_WORDS
from lorikeet_engine.simulation.workload.description import EngineKnobs, Slo
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_engine.simulation.workload.tenant_traffic import TenantTraffic
from lorikeet_engine.simulation.world import World

COPY_BYTES = 256 << 20
COPY_ROUNDS = 8
WARM_PROMPT, WARM_OUTPUT = 64, 4


@dataclass(slots=True)
class TimedRunner:
    """Stands between loop and runner: shows every plan, and times the steps in which something was computed."""

    runner: ModelRunner
    clock: Callable[[], float]
    on_plan: Callable[[StepPlan], None] | None = None
    _began: float = 0.0
    _has_computed: bool = False

    def begin(self) -> None:
        self._began, self._has_computed = self.clock(), False

    def spent(self) -> float:
        """The host's part of the step included."""
        return self.clock() - self._began if self._has_computed else 0.0

    def execute(self, plan: StepPlan) -> StepResult:
        self._show(plan)
        began = self.clock()
        result = self.runner.execute(plan)
        return replace(result, seconds=self.clock() - began)

    def launch(self, plan: StepPlan) -> None:
        self._show(plan)
        self.runner.launch(plan)

    def collect(self) -> StepResult:
        self._has_computed = True
        began = self.clock()
        result = self.runner.collect()
        return replace(result, waited_s=self.clock() - began)

    def write_extent(self, base_grain: int, image: Any) -> float:
        return self.runner.write_extent(base_grain, image)

    def move_extent(self, source_grain: int, target_grain: int, n_grains: int) -> float:
        return self.runner.move_extent(source_grain, target_grain, n_grains)

    def _show(self, plan: StepPlan) -> None:
        self._has_computed = True
        if self.on_plan:
            self.on_plan(plan)


class NoDisk:
    """Requests ask for the base model alone, so nothing is loaded."""

    def next_at(self) -> float | None:
        return None


@dataclass(slots=True)
class EngineTarget:
    """A loaded model; every setup gets an engine of its own over it.

    Attributes:
        on_plan: shown every step plan of the runs, as the runner gets it.
        clock: by which steps are timed.
    """

    model_dir: Path
    model: LoadedModel
    machine: Machine
    on_plan: Callable[[StepPlan], None] | None = None
    clock: Callable[[], float] = time.perf_counter

    @property
    def source(self) -> Source:
        return "engine"

    def run(self, setup: Setup) -> PointRecord:
        point = self._measured(setup)
        gc.collect()  # this engine's pages, before the next one's are asked for
        return point

    def _measured(self, setup: Setup) -> PointRecord:
        timed: list[TimedRunner] = []

        def around(runner: ModelRunner) -> TimedRunner:
            timed.append(TimedRunner(runner, self.clock))
            return timed[0]

        try:
            engine = build_engine(self._config(setup), self.model, around=around)
        except (UnsupportedModel, ValueError) as error:
            raise DescriptionError(str(error)) from None
        try:
            return self._run(engine, timed[0], setup)
        finally:
            engine.close()

    def _run(self, engine: Engine, runner: TimedRunner, setup: Setup) -> PointRecord:
        warm_up(engine, setup.load)
        spec, knobs = engine.spec, EngineKnobs(max_model_len=engine.budget.max_model_len)
        workload = closed_loop("sweep", setup.load, knobs, model=str(self.model_dir), device=self.model.device)
        world = World(
            loop=engine.loop,
            runner=runner,
            disk=NoDisk(),
            clock=VirtualClock(),
            traffic=TenantTraffic(workload, AdapterCatalogue(spec), n_words=words_of(spec.vocab)),
            recorder=Recorder(Slo()),
        )
        collector = Collector(world)
        runner.on_plan = self.on_plan
        world.run()
        return collector.point(setup)

    def _config(self, setup: Setup) -> EngineConfig:
        decided: dict[str, Any] = {
            "model_dir": self.model_dir,
            "model_name": self.model_dir.name,
            "store_url": str(self.model_dir),  # no adapter is ever looked for
            "endpoint": "ipc://unused",
            "device": self.model.device,
            "quantization": self.model.quantization,
            "dtype": str(self.model.weights.dtype).removeprefix("torch."),
        }
        if fixed := sorted(decided.keys() & setup.engine):
            raise DescriptionError(f"engine.{fixed[0]} is decided for the whole sweep, when its model is loaded")
        settings = decided | unlimited(setup.load) | dict(setup.engine)
        config = read_config(settings)
        if not setup.pool_tokens:
            return config
        per_token = kv_bytes_per_token(self.model.spec, itemsize=self.model.weights.dtype.itemsize)
        reserved = config.block_size  # the block that is never handed out
        return read_config(
            settings | {"kv_cache_bytes": (pool_tokens(setup, config.block_size) + reserved) * per_token}
        )


def engine_target(model_dir: Path, device: str, clock: Callable[[], float] = time.perf_counter) -> EngineTarget:
    """Load the model on "cpu", "cuda", or "auto", the latter where there is one.

    Raises:
        UnsupportedModel: it is not covered.
    """
    config = EngineConfig(model_dir=model_dir, model_name="", store_url="", endpoint="", device=device)
    chosen = decide_device(config).device
    model = load_model(model_dir, "auto", device=chosen)
    set_threads(config.threads)  # memory is copied by as many as steps are computed by
    return EngineTarget(model_dir, model, machine_of(model_dir, model, clock), clock=clock)


def machine_of(model_dir: Path, model: LoadedModel, clock: Callable[[], float]) -> Machine:
    """What the counters refer to, and how fast memory is copied here and now."""
    profile = profile_of(model.device)
    cost = ModelCost.of(model.spec, itemsize=model.weights.dtype.itemsize, int8_weights=model.quantization == "int8")
    return Machine(
        model=model_dir.name,
        device=profile.name,
        peak_flops=profile.peak_flops,
        peak_bandwidth=profile.peak_bandwidth,
        copy_bandwidth=copy_bandwidth(model.device, clock),
        kv_bytes_per_token=cost.kv_bytes_per_token,
        weights_bytes=cost.weights_bytes,
    )


def words_of(vocab: int) -> int:
    """Prompts are made of tokens below it: a power of two."""
    return min(N_WORDS, 1 << (vocab.bit_length() - 1))


def warm_up(engine: Engine, load: Load) -> None:
    """One short request, so that what happens once only is not in the figures."""
    n_prompt = min(WARM_PROMPT, load.prompt_tokens)
    request = Request(
        request_id="warm-up",
        tenant=TENANT,
        prompt=tuple(i % engine.spec.vocab for i in range(n_prompt)),
        max_tokens=WARM_OUTPUT,
        sampling=SamplingParams(),
        adapter=None,
        ignore_eos=True,
    )
    try:
        engine.loop.submit([request], 0.0)
    except EngineError as error:
        raise DescriptionError(f"the engine takes no request: {error.message}") from None
    while engine.loop.has_work:
        engine.loop.step(0.0)


def copy_bandwidth(device: str, clock: Callable[[], float]) -> float:
    """Bytes read and written a second by the fastest of some copies of a large block of the device's memory."""
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(COPY_ROUNDS):
        started = clock()
        target.copy_(source)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(clock() - started)
    return 2 * COPY_BYTES / min(seconds)
