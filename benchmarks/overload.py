"""What overload does: 1x, 2x, 5x and 10x of what the engine can serve, for ten virtual minutes each.

1x is found by search: the highest rate at which 99 % of all requests, refused ones included, get their first token
within 10 s and their tokens 200 ms apart on average. Nine tenants with equal weights share one RTX 4090: eight of them
send what is left of the rate, the quiet one always the same, well inside its share.

    python benchmarks/overload.py [--json FILE] [--quick]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from figures import Figure, arguments, at_least, at_most, present, print_table

from lorikeet_engine.simulation.assembly import build_world
from lorikeet_engine.simulation.report.summary import summarise
from lorikeet_engine.simulation.workload.description import Adapters, EngineKnobs, Slo, TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths

SLO = Slo(ttft_s=10.0, tpot_s=0.2)
ATTAINMENT = 0.99
FACTORS = (1, 2, 5, 10)
CROWD = 8
QUIET_RATE = 0.5
PROMPT = Lengths(kind="lognormal", mean=512, sigma=0.8, max=4000)
OUTPUT = Lengths(kind="exponential", mean=128, max=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests a second of the crowd together, of one of them that floods, and of the quiet tenant."""

    crowd: float
    flood: float = 0.0
    quiet: float = QUIET_RATE
    seconds: float = 600.0


def workload(load: Load) -> Workload:
    groups = [_group("quiet", load.quiet, tenants=1)]
    if load.crowd:
        groups.append(_group("crowd", load.crowd, tenants=CROWD))
    if load.flood:
        groups.append(_group("flood", load.flood, tenants=1))
    return Workload(
        name="overload",
        model="qwen2.5-7b",
        device="rtx4090",
        duration_s=load.seconds,
        engine=EngineKnobs(max_num_seqs=128, max_num_batched_tokens=1024, adapter_pool_bytes=1 << 29),
        slo=SLO,
        tenants=tuple(groups),
    )


def _group(name: str, rate: float, *, tenants: int) -> TenantGroup:
    return TenantGroup(
        name=name,
        tenants=tenants,
        arrivals=Arrivals(rate=rate),
        prompt=PROMPT,
        output=OUTPUT,
        max_tokens=1024,
        adapters=Adapters(count=2 * tenants, zipf=0.0),
    )


def simulate(load: Load) -> dict[str, Any]:
    described = workload(load)
    world = build_world(described)
    world.run(until=load.seconds)
    return summarise(described, world)


def tenant(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(values for values in report["tenants"] if values["tenant"] == name)


def find_one_x(seconds: float, tolerance: float) -> float:
    """The crowd's highest rate that keeps the objective, by bisection."""
    low, high = 4.0, 8.0
    while keeps(high, seconds):
        low, high = high, 2 * high
    while high / low > 1 + tolerance:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if keeps(middle, seconds) else (low, middle)
    return low


def keeps(rate: float, seconds: float) -> bool:
    """Whether the objective is kept at that rate; ends as soon as too many requests have missed it."""
    world = build_world(workload(Load(crowd=rate, seconds=seconds)))
    allowed = (1 - ATTAINMENT) * (rate + QUIET_RATE) * seconds
    while world.clock.now < seconds:
        world.run(until=world.clock.now + seconds / 20)
        records = world.recorder.tenants.values()
        if sum(record.missed + record.refused + record.expired for record in records) > allowed:
            return False
    return True


def table(reports: dict[str, dict[str, Any]]) -> None:
    columns = (
        "load", "offered/s", "good/s", "attained", "refused", "expired", "TTFT p50", "p99", "ITL p99", "quiet TTFT p50",
        "p99", "quiet attained", "predicted TTFT off by", "preempted", "Jain",
    )  # fmt: skip
    rows = []
    for name, report in reports.items():
        latency, requests, quiet = report["latency"], report["requests"], tenant(report, "quiet")
        seconds = report["virtual_seconds"]
        rows.append(
            (
                name,
                f"{requests['submitted'] / seconds:.2f}",
                f"{report['goodput']['requests_per_s']:.2f}",
                f"{100 * report['goodput']['attainment']:.1f} %",
                f"{requests['refused']}",
                f"{requests['expired']}",
                f"{latency['ttft']['p50']:.2f} s",
                f"{latency['ttft']['p99']:.2f} s",
                f"{1000 * latency['itl']['p99']:.0f} ms",
                f"{quiet['latency']['ttft']['p50']:.3f} s",
                f"{quiet['latency']['ttft']['p99']:.3f} s",
                f"{100 * quiet['goodput']['attainment']:.1f} %",
                f"{report['ttft_prediction']['mean_absolute_error']:.3f} s",
                f"{sum(report['preemptions']['by_mode'].values())}",
                f"{report['fairness']['jain_index']:.3f}",
            )
        )
    print_table("Overload", columns, rows)
    for name, report in reports.items():
        print(name, report["refusals"])  # noqa: T201


def promised(one_x: float, reports: dict[str, dict[str, Any]]) -> list[Figure]:
    at_1, at_10 = reports["1x"], reports["10x"]
    quiet_1 = tenant(at_1, "quiet")["latency"]["ttft"]["p99"]
    found = [Figure("1x, all tenants", one_x + QUIET_RATE, "requests/s")]
    share = at_10["goodput"]["requests_per_s"] / at_1["goodput"]["requests_per_s"]
    found.append(at_least("goodput at 10x over 1x", share, "", 0.9))
    for name, report in reports.items():
        if name == "alone":
            continue
        requests = report["requests"]
        admitted = requests["submitted"] - requests["refused"]
        quiet = tenant(report, "quiet")["latency"]["ttft"]["p99"]
        found += [
            at_most(f"p99 TTFT of admitted requests, {name}", report["latency"]["ttft"]["p99"], "s", SLO.ttft_s),
            at_most(f"admitted requests that expired, {name}", 100 * requests["expired"] / admitted, "%", 1.0),
            at_most(f"quiet tenant's p99 TTFT over 1x, {name}", quiet / quiet_1, "", 1.5),
            Figure(
                f"predicted TTFT, mean absolute error, {name}", report["ttft_prediction"]["mean_absolute_error"], "s"
            ),
            Figure(f"Jain index, {name}", report["fairness"]["jain_index"], ""),
        ]
    return found


def main() -> None:
    options = arguments("Goodput and fairness under overload, in virtual time.").parse_args()
    seconds = 60.0 if options.quick else 600.0
    one_x = find_one_x(seconds, 0.1 if options.quick else 0.02)
    factors = (1, 10) if options.quick else FACTORS
    reports = {"alone": simulate(Load(crowd=0.0, seconds=seconds))}
    for factor in factors:
        crowd = (one_x + QUIET_RATE) * factor - QUIET_RATE
        reports[f"{factor}x"] = simulate(Load(crowd=crowd, seconds=seconds))
    flood = 9 * (one_x + QUIET_RATE)
    reports["one tenant floods"] = simulate(Load(crowd=one_x, flood=flood, seconds=seconds))
    table(reports)
    found = promised(one_x, reports)
    present("Promised and found", found, options.json)


if __name__ == "__main__":
    main()
