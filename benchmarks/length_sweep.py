"""Closed-loop runs of one published experiment: Qwen2.5-7B on an RTX 4090, 256 tokens of output, random prompts.

Each client sends its next request a moment after its last answer ended: a few milliseconds for HTTP and tokenising.
What was published says neither how many requests were sent nor how long that moment was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lorikeet_engine.cost import StepWork
from lorikeet_engine.simulation.assembly import build_world
from lorikeet_engine.simulation.report.recorder import Sample
from lorikeet_engine.simulation.report.samples import Gaps, percentile
from lorikeet_engine.simulation.workload.description import EngineKnobs, SharedPrefixes, TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_engine.simulation.world import World

MODEL, DEVICE, OUTPUT = "qwen2.5-7b", "rtx4090", 256
TURNAROUND_S = 0.005
KV_BYTES_PER_TOKEN = 57_344
BLOCK = 16
POOL_BLOCKS = 5_429  # 86,864 tokens
LARGER_POOL_BLOCKS = 7_162  # 6.12 GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One run: prompt length, clients, and what is varied about the engine."""

    length: int
    clients: int = 16
    budget: int = 2048
    pool_blocks: int = POOL_BLOCKS
    shared: int = 0  # tokens at the head of every prompt that are the same
    caching: bool = False
    waves: int = 6
    seed: int = 1
    pause_s: float = TURNAROUND_S

    @property
    def pool_tokens(self) -> int:
        return self.pool_blocks * BLOCK


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed. `usage` is the peak share of the pool in use; rates are over the whole run."""

    setup: Setup
    usage: float
    gaps: Gaps
    ttft: list[float]
    queue: list[float]
    iterations_s: float
    output_s: float
    total_s: float
    flops_s: float
    read_s: float
    phases: dict[str, tuple[float, StepWork]]
    samples: list[Sample]

    @property
    def itl_p50(self) -> float:
        return self.gaps.percentile(0.5)

    def ttft_at(self, share: float) -> float:
        return percentile(sorted(self.ttft), share)

    def phase_flops_s(self, kind: str) -> float:
        seconds, work = self.phases[kind]
        return work.flops / seconds

    def at(self, seconds: float) -> Sample:
        """The last sample before that time."""
        return next(sample for sample in reversed(self.samples) if sample.at <= seconds)


def run(setup: Setup) -> Outcome:
    world = build_world(_workload(setup))
    world.run()
    return _outcome(setup, world)


def _workload(setup: Setup) -> Workload:
    return Workload(
        name="published",
        model=MODEL,
        device=DEVICE,
        seed=setup.seed,
        n_requests=setup.clients * setup.waves,
        engine=EngineKnobs(
            max_model_len=8192,
            max_num_seqs=256,
            max_num_batched_tokens=setup.budget,
            block_size=BLOCK,
            kv_cache_bytes=setup.pool_tokens * KV_BYTES_PER_TOKEN,
            enable_prefix_caching=setup.caching,
            max_queued_tokens=1 << 30,
            ttft_deadline=0.0,
            tenant_queue_share=1.0,
        ),
        tenants=(
            TenantGroup(
                name="bench",
                arrivals=Arrivals(kind="closed", concurrency=setup.clients, think_s=setup.pause_s),
                prompt=Lengths(value=setup.length),
                output=Lengths(value=OUTPUT),
                shared_prefixes=SharedPrefixes(tokens=setup.shared) if setup.shared else None,
            ),
        ),
    )


def _outcome(setup: Setup, world: World) -> Outcome:
    (record,) = world.recorder.tenants.values()
    counters, seconds = world.loop.counters, world.clock.now
    return Outcome(
        setup=setup,
        usage=world.recorder.kv_peak,
        gaps=record.gaps,
        ttft=list(record.ttft),
        queue=list(record.queue),
        iterations_s=counters.steps.total() / seconds,
        output_s=world.recorder.output_tokens / seconds,
        total_s=(counters.prompt_tokens + world.recorder.output_tokens) / seconds,
        flops_s=sum(work.flops for work in counters.work.values()) / seconds,
        read_s=sum(work.read_bytes for work in counters.work.values()) / seconds,
        phases={kind: (counters.step_seconds[kind], work) for kind, work in counters.work.items()},
        samples=world.recorder.samples,
    )


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Least squares: intercept, slope, and R²."""
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    sxx = sum((x - mx) ** 2 for x, _ in points)
    sxy = sum((x - mx) * (y - my) for x, y in points)
    syy = sum((y - my) ** 2 for _, y in points)
    slope = sxy / sxx
    return my - slope * mx, slope, sxy * sxy / (sxx * syy)
