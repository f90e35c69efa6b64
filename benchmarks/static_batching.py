"""What continuous batching saves over static batches, on the same device and the same requests.

All requests are there at the beginning, so nothing but the batching differs: the static side pads prompts to the
longest of the batch and starts the next batch when the last answer of this one is complete.

    python benchmarks/static_batching.py [--json FILE] [--quick]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from figures import Figure, arguments, at_most, near, present, print_table

from lorikeet_engine.cost import ModelCost
from lorikeet_engine.simulation.assembly import build_world
from lorikeet_engine.simulation.report.samples import mean
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.simulation.static_batching import Job, StaticRun, run_static
from lorikeet_engine.simulation.workload.description import EngineKnobs, TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths

MODEL, DEVICE, BATCH = "qwen2.5-7b", "rtx4090", 32
MEAN_OUTPUT, MAX_OUTPUT = 200, 2000


@dataclass(frozen=True, slots=True)
class Case:
    """Requests, and how they came out of either way of batching."""

    name: str
    jobs: Sequence[Job]
    static: StaticRun
    continuous_s: float
    continuous_e2e: float
    continuous_rows: float  # decode rows of a step, on average; every one of them is of use


def one_long_answer() -> list[Job]:
    """A batch of 32 with mean output 200 and maximum 2000; the others fall off exponentially."""
    n = BATCH - 1
    scale = (BATCH * MEAN_OUTPUT - MAX_OUTPUT) / n
    return [Job(512, round(-scale * math.log(1 - (i + 0.5) / n)) + 1) for i in range(n)] + [Job(512, MAX_OUTPUT)]


def mixed(n: int) -> list[Job]:
    """Short questions among long documents."""
    source = Random(1)
    return [Job(source.choice((64, 64, 64, 2048)), source.choice((32, 32, 32, 512))) for _ in range(n)]


def short_answers(n: int) -> list[Job]:
    """Under 16 tokens each: hardly any time to fall apart."""
    source = Random(1)
    return [Job(64, source.randint(1, 15)) for _ in range(n)]


def compare(name: str, jobs: Sequence[Job]) -> Case:
    static = run_static(jobs, BATCH, ModelCost.of(load_model(MODEL)), load_device(DEVICE))
    world = build_world(
        Workload(
            name=name,
            model=MODEL,
            device=DEVICE,
            n_requests=len(jobs),
            engine=EngineKnobs(
                max_num_seqs=BATCH,
                enable_prefix_caching=False,
                max_queued_requests=len(jobs),
                max_queued_tokens=1 << 30,
                ttft_deadline=0.0,
                tenant_queue_share=1.0,
            ),
            tenants=tuple(
                TenantGroup(
                    name=f"{i}",
                    arrivals=Arrivals(kind="closed", concurrency=n, stop_s=1e-9),  # one request each, at once
                    prompt=Lengths(value=n_prompt),
                    output=Lengths(value=n_output),
                )
                for i, ((n_prompt, n_output), n) in enumerate(_counted(jobs))
            ),
        )
    )
    world.run()
    counters = world.loop.counters
    decode_steps = counters.steps["decode"] + counters.steps["mixed"]
    n_decoded = world.recorder.output_tokens - len(jobs)
    return Case(
        name,
        jobs,
        static,
        world.clock.now,
        mean([value for record in world.recorder.tenants.values() for value in record.e2e]),
        n_decoded / decode_steps if decode_steps else 0.0,
    )


def _counted(jobs: Sequence[Job]) -> list[tuple[tuple[int, int], int]]:
    kinds: dict[tuple[int, int], int] = {}
    for job in jobs:
        kinds[job.n_prompt, job.n_output] = kinds.get((job.n_prompt, job.n_output), 0) + 1
    return list(kinds.items())


def table(cases: Sequence[Case]) -> None:
    columns = (
        "case", "requests", "static", "continuous", "gain", "rows of use, static", "continuous", "rows wasted",
        "padding", "waited after last token", "mean e2e, static", "continuous",
    )  # fmt: skip
    rows = [
        (
            case.name,
            str(len(case.jobs)),
            f"{case.static.seconds:.2f} s",
            f"{case.continuous_s:.2f} s",
            f"{case.static.seconds / case.continuous_s:.2f}x",
            f"{case.static.mean_effective_batch:.1f}",
            f"{case.continuous_rows:.1f}",
            f"{100 * (1 - case.static.efficiency):.0f} %",
            f"{100 * case.static.padding_share:.0f} %",
            f"{case.static.blocked_s / len(case.jobs):.2f} s",
            f"{mean(case.static.e2e):.2f} s",
            f"{case.continuous_e2e:.2f} s",
        )
        for case in cases
    ]
    print_table(f"Static batches of {BATCH} and continuous batching, {MODEL} on {DEVICE}", columns, rows)


def over_time(case: Case) -> None:
    """The effective batch of the one static batch, at tenths of its time."""
    run = case.static
    rows = []
    for tenth in range(11):
        at = run.seconds * tenth / 10
        live = next((n for moment, n in run.live if moment >= at), 0)
        rows.append((f"{10 * tenth} %", str(live), "#" * live))
    print_table(f"Rows of use over time, {case.name}", ("time", "rows", ""), rows)


def promised(long: Case, several: Case, cases: Sequence[Case]) -> list[Figure]:
    found = [
        near("mean output of the batch", mean([job.n_output for job in long.jobs]), "tokens", MEAN_OUTPUT, 0.02),
        at_most("rows of use at half time", long.static.half_time_live[0], "", 2),
    ]
    for case in [*cases, several]:
        found += [
            Figure(f"static over continuous time, {case.name}", case.static.seconds / case.continuous_s, "x"),
            Figure(f"effective batch, static, {case.name}", case.static.mean_effective_batch, "rows"),
        ]
    return found


def main() -> None:
    options = arguments("Static batches against continuous batching, in virtual time.").parse_args()
    n = 256 if options.quick else 2048
    long = compare("one long answer", one_long_answer())
    several = compare("several such batches", one_long_answer() * (n // 64))
    cases = [long, compare("long and short mixed", mixed(n)), compare("answers under 16 tokens", short_answers(n))]
    table([*cases, several])
    over_time(long)
    present("Promised and found", promised(long, several, cases), options.json)


if __name__ == "__main__":
    main()
