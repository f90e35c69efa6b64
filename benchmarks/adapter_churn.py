"""Many more adapters than the arena holds: 1,000 tenants, 10,000 adapters by Zipf, room for 100 of them.

Three ways to live with it: GDSF eviction, LRU eviction, and GDSF without affinity (requests whose adapter is in the
batch already are not preferred). Each simulation is a process of its own, whose CPU time and peak memory are measured.

    python benchmarks/adapter_churn.py [--json FILE] [--quick]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from figures import Figure, arguments, at_most, present, print_table

from lorikeet_engine.cost import adapter_bytes
from lorikeet_engine.simulation.assembly import build_world
from lorikeet_engine.simulation.report.summary import summarise
from lorikeet_engine.simulation.shipped import load_model
from lorikeet_engine.simulation.workload.description import Adapters, EngineKnobs, TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths

MODEL, DEVICE = "llama-3-8b", "h200"
TENANTS, ADAPTERS, ROOM = 1_000, 10_000, 100
RATE = 60.0
RANKS, TARGETS = (8, 16, 24), ("q_proj", "v_proj")
POLICIES = {"gdsf": ("gdsf", True), "lru": ("lru", True), "no affinity": ("gdsf", False)}
CPU_BOUND_S, MEMORY_BOUND = 600.0, 2.0  # of one simulation, in seconds and GiB
REQUESTS, QUICK_REQUESTS = 200_000, 2_000


def workload(policy: str, n_requests: int) -> Workload:
    eviction, affinity = POLICIES[policy]
    modules = [f"self_attn.{target}" for target in TARGETS]
    mean_bytes = adapter_bytes(load_model(MODEL), sum(RANKS) // len(RANKS), modules=modules)
    return Workload(
        name=f"adapter churn, {policy}",
        model=MODEL,
        device=DEVICE,
        n_requests=n_requests,
        engine=EngineKnobs(
            max_num_seqs=256,
            adapter_pool_bytes=ROOM * mean_bytes,
            host_adapter_cache_bytes=10 * ROOM * mean_bytes,
            adapter_eviction="gdsf" if eviction == "gdsf" else "lru",
            adapter_affinity=affinity,
        ),
        tenants=(
            TenantGroup(
                name="tenant",
                tenants=TENANTS,
                arrivals=Arrivals(rate=RATE),
                prompt=Lengths(kind="lognormal", mean=256, sigma=0.7, max=4096),
                output=Lengths(kind="exponential", mean=64, max=1024),
                max_tokens=1024,
                adapters=Adapters(count=ADAPTERS, zipf=1.0, ranks=RANKS, targets=TARGETS),
            ),
        ),
    )


def simulate(policy: str, n_requests: int) -> dict[str, Any]:
    """Run in this process, and say what that took."""
    described = workload(policy, n_requests)
    world = build_world(described)
    world.run()
    values = summarise(described, world)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {name: values[name] for name in ("requests", "latency", "adapters", "goodput", "phases", "throughput")} | {
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_gib": peak_bytes() / 2**30,
        "virtual_seconds": values["virtual_seconds"],
    }


def peak_bytes() -> int:
    """The most memory this process has held; `ru_maxrss` would still count what its parent held when it forked."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def simulate_apart(policy: str, n_requests: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--policy", policy, "--requests", str(n_requests)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def table(reports: dict[str, dict[str, Any]]) -> None:
    columns = (
        "policy", "requests/s", "arena hits", "disk loads", "placements", "stalled", "longest wait", "TTFT p50", "p99",
        "ITL p50", "p99", "LoRA share of reads", "CPU time", "peak memory",
    )  # fmt: skip
    rows = []
    for policy, values in reports.items():
        adapters, latency = values["adapters"], values["latency"]
        rows.append(
            (
                policy,
                f"{values['requests']['completed'] / values['virtual_seconds']:.1f}",
                f"{100 * adapters['hit_rate']:.2f} %",
                str(adapters["loads"].get("disk", 0)),
                str(adapters["placements"]),
                f"{adapters['stall_seconds']:.0f} s",
                f"{adapters['longest_wait']:.2f} s",
                f"{1000 * latency['ttft']['p50']:.1f} ms",
                f"{1000 * latency['ttft']['p99']:.0f} ms",
                f"{1000 * latency['itl']['p50']:.1f} ms",
                f"{1000 * latency['itl']['p99']:.1f} ms",
                f"{100 * values['phases']['all']['lora_share_of_reads']:.1f} %",
                f"{values['cpu_s']:.0f} s",
                f"{values['peak_gib']:.2f} GiB",
            )
        )
    print_table(f"{TENANTS} tenants, {ADAPTERS} adapters, room for {ROOM}", columns, rows)


def promised(reports: dict[str, dict[str, Any]]) -> list[Figure]:
    found: list[Figure] = []
    for policy, values in reports.items():
        adapters, ttft, n = values["adapters"], values["latency"]["ttft"], values["requests"]["submitted"]
        found += [
            Figure(f"arena hit rate, {policy}", 100 * adapters["hit_rate"], "%"),
            Figure(f"stall time, {policy}", adapters["stall_seconds"], "s"),
            Figure(f"p50 TTFT, {policy}", ttft["p50"], "s"),
            Figure(f"p99 TTFT, {policy}", ttft["p99"], "s"),
            at_most(f"CPU time of {n} requests, {policy}", values["cpu_s"], "s", CPU_BOUND_S),
            at_most(f"peak memory, {policy}", values["peak_gib"], "GiB", MEMORY_BOUND),
        ]
    return found


def main() -> None:
    parser = arguments("Adapters that come and go, in virtual time.")
    parser.add_argument("--policy", choices=POLICIES, help="one simulation, in this process, as JSON")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    if options.policy:
        print(json.dumps(simulate(options.policy, options.requests)))  # noqa: T201
        return
    n_requests = QUICK_REQUESTS if options.quick else options.requests
    reports = {policy: simulate_apart(policy, n_requests) for policy in POLICIES}
    table(reports)
    present("Promised and found", promised(reports), options.json)


if __name__ == "__main__":
    main()
