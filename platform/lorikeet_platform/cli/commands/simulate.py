"""`lorikeet simulate`: a workload on a device that is arithmetic, with the scheduler that serves real requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lorikeet_platform.cli.console import CommandFailed, ExitCode, print_table, say

if TYPE_CHECKING:
    from lorikeet_engine.simulation.workload.description import Workload

NAMED_TENANTS = 12  # lines of the table by tenant; the JSON report has all


def simulate(
    workload: Annotated[
        str, typer.Argument(help="A YAML or JSON description, or a shipped one: chat, closed_loop, many_adapters.")
    ],
    device: Annotated[
        str | None, typer.Option("--device", help="rtx4090, h200, cpu2, or a profile's path instead of the workload's.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Another seed than the workload's.")] = None,
    static: Annotated[
        int | None, typer.Option("--static", min=1, help="Also serve the requests in static batches of this size.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the whole report here.")] = None,
    png_file: Annotated[Path | None, typer.Option("--png", help="Draw the page of plots here.")] = None,
) -> None:
    """Run a workload under a virtual clock and report latency, goodput, memory and fairness."""
    import json

    from lorikeet_engine.simulation.assembly import build_world, run_in_static_batches
    from lorikeet_engine.simulation.report.summary import summarise, summarise_static
    from lorikeet_engine.simulation.workload.strict_records import DescriptionError

    try:
        described = _described(workload, device, seed)
        world = build_world(described)
    except DescriptionError as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from None
    world.run()
    report = summarise(described, world)
    _print_report(report)
    if static:
        report["static_batching"] = summarise_static(run_in_static_batches(described, static), static)
        _print_static(report["static_batching"], report)
    if json_file:
        json_file.write_text(json.dumps(report, indent=2) + "\n")
        say(f"Report written to {json_file}.")
    if png_file:
        from lorikeet_engine.simulation.report.plots import draw_page

        draw_page(report, png_file)
        say(f"Plots drawn to {png_file}.")


def _described(workload: str, device: str | None, seed: int | None) -> Workload:
    from dataclasses import replace

    from lorikeet_engine.simulation.workload.description import load_workload

    described = load_workload(workload)
    return replace(
        described,
        device=described.device if device is None else device,
        seed=described.seed if seed is None else seed,
    )


def _print_report(report: dict[str, Any]) -> None:
    requests, kv, adapters = report["requests"], report["kv"], report["adapters"]
    phases = report["phases"]["all"]
    rows: list[tuple[str, object]] = [
        ("virtual time", f"{report['virtual_seconds']:.1f} s, {report['steps']} steps"),
        ("requests", ", ".join(f"{n} {outcome}" for outcome, n in requests.items() if n)),
        ("goodput", f"{report['goodput']['requests_per_s']:.2f}/s, {100 * report['goodput']['attainment']:.1f} %"),
        ("output", f"{report['throughput']['output_tokens_per_s']:.0f} tokens/s"),
        ("KV in use", f"{100 * kv['mean_used_share']:.1f} %, peak {100 * kv['peak_used_share']:.1f} %"),
        ("prefix hits", f"{100 * report['prefix_cache']['hit_rate']:.1f} % of prompt tokens"),
        ("adapter hits", f"{100 * adapters['hit_rate']:.1f} %, {adapters['stall_seconds']:.1f} s stalled"),
        ("preemptions", ", ".join(f"{n} {mode}" for mode, n in report["preemptions"]["by_mode"].items() if n) or 0),
        ("refused", ", ".join(f"{n} {reason}" for reason, n in report["refusals"].items()) or 0),
        ("predicted TTFT", f"off by {report['ttft_prediction']['mean_absolute_error']:.3f} s on average"),
        ("MFU, MBU", f"{100 * phases['mfu']:.1f} %, {100 * phases['mbu']:.1f} %"),
        ("Jain index", f"{report['fairness']['jain_index']:.3f}"),
    ]
    print_table((report["workload"].upper(), ""), rows, empty="")
    _print_latency(report["latency"])
    _print_tenants(report["tenants"])


def _print_static(static: dict[str, Any], report: dict[str, Any]) -> None:
    rows = [
        ("all done after", f"{static['seconds']:.1f} s", f"{report['virtual_seconds']:.1f} s"),
        (
            "output tokens/s",
            f"{static['output_tokens_per_s']:.0f}",
            f"{report['throughput']['output_tokens_per_s']:.0f}",
        ),
        ("end to end, p50", f"{static['e2e']['p50']:.2f} s", f"{report['latency']['e2e']['p50']:.2f} s"),
        ("rows of use in a step", f"{static['effective_batch']:.1f} of {static['batch_size']}", "all"),
        ("padding of prompts", f"{100 * static['padding_share']:.0f} %", "none"),
        ("waited after the last token", f"{static['blocked_seconds_per_request']:.2f} s", "0 s"),
    ]
    print_table(("STATIC BATCHES", "STATIC", "CONTINUOUS"), rows, empty="")


def _print_latency(latency: dict[str, Any]) -> None:
    columns = ("mean", "p50", "p90", "p99", "max")
    rows = [(name, *(f"{values[column]:.4f}" for column in columns)) for name, values in latency.items()]
    print_table(("SECONDS", *(column.upper() for column in columns)), rows, empty="")


def _print_tenants(tenants: list[dict[str, Any]]) -> None:
    busiest = sorted(tenants, key=lambda tenant: -tenant["requests"]["submitted"])[:NAMED_TENANTS]
    rows = [
        (
            tenant["tenant"],
            tenant["requests"]["submitted"],
            tenant["requests"]["completed"],
            tenant["requests"]["refused"] + tenant["requests"]["expired"],
            f"{100 * tenant['goodput']['attainment']:.1f}",
            f"{tenant['latency']['ttft']['p99']:.3f}",
        )
        for tenant in busiest
    ]
    print_table(("TENANT", "REQUESTS", "COMPLETED", "REFUSED", "GOOD %", "TTFT P99"), rows, empty="")
    if len(tenants) > len(busiest):
        say(f"{len(tenants) - len(busiest)} more tenants are in the JSON report.")
