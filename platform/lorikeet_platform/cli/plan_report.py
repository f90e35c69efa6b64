"""A plan on a terminal: one table after another, each under 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer

from lorikeet_platform.cli.console import print_table
from lorikeet_platform.planning.schemas import Calibration, CapacityPlan, Compared, Estimated
from lorikeet_platform.planning.sizing import milliseconds, percent, size

TITLES = {"ttft": "first token", "itl": "between tokens", "e2e": "whole answer", "running": "most at once"}


def print_plan(plan: CapacityPlan) -> None:
    basis = "by formulas" if plan.basis == "formulas" else "calibrated by the running engine"
    typer.echo(f"{plan.model} on {plan.device}, {basis}\n")
    _table(("MEMORY", ""), _memory(plan))
    _table(("SIZING", "", "HOW"), [(step.title, step.value, step.text) for step in plan.steps])
    _table(("CONTEXT", *(f"×{n:,}" for n in plan.concurrency_table.concurrencies)), _concurrency(plan))
    if any(not cell.fits for row in plan.concurrency_table.cells for cell in row):
        typer.echo("(…) does not fit\n")
    _table(("BATCH", "READ A TOKEN", "ITL", "TOKENS/S", "FITS"), _curve(plan))
    typer.echo(f"weights and KV are read alike at a batch of {plan.balanced_batch:,.1f}\n")
    if plan.lora is not None:
        _table(("ADAPTERS", ""), _lora(plan))
    if plan.estimate is not None:
        _table(_estimate_columns(plan), _estimate(plan))
    if plan.calibration is not None:
        _print_calibration(plan.calibration)
    _table(("SETTING", "", "WHY"), [(knob.name, knob.value, knob.why) for knob in plan.knobs])
    typer.echo(f"Set them in the environment, such as {plan.knobs[0].setting}.\n")
    print_table(("NOTES",), [(note,) for note in plan.notes], empty="")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print_table(columns, rows, empty="")
    typer.echo("")


def _memory(plan: CapacityPlan) -> list[tuple[str, str]]:
    return [*((row.name, size(row.bytes)) for row in plan.memory), ("available", size(plan.available_bytes))]


def _concurrency(plan: CapacityPlan) -> list[tuple[str, ...]]:
    table = plan.concurrency_table
    return [
        (f"{context:,}", *(size(cell.bytes) if cell.fits else f"({size(cell.bytes)})" for cell in cells))
        for context, cells in zip(table.contexts, table.cells, strict=True)
    ]


def _curve(plan: CapacityPlan) -> list[tuple[str, ...]]:
    return [
        (
            f"{point.batch}",
            size(point.read_bytes_per_token),
            milliseconds(point.itl_s),
            f"{point.output_tokens_per_s:,.0f}",
            "yes" if point.fits else "no",
        )
        for point in plan.curve
    ]


def _lora(plan: CapacityPlan) -> list[tuple[str, str]]:
    lora = plan.lora
    assert lora is not None
    bound = "the KV pool" if lora.bound_by == "kv" else "the adapters that the arena holds"
    return [
        ("one", size(lora.adapter_bytes)),
        ("all", size(lora.all_bytes)),
        ("one private context each", size(lora.private_kv_bytes)),
        ("in the arena at once", f"{lora.resident:,}"),
        ("concurrency is bounded by", bound),
    ]


def _estimate_columns(plan: CapacityPlan) -> tuple[str, ...]:
    return ("ESTIMATE", "", "90 % WITHIN") if plan.calibration else ("ESTIMATE", "")


def _estimate(plan: CapacityPlan) -> list[tuple[str, ...]]:
    found = plan.estimate
    assert found is not None
    rows = [
        _estimated("first token", found.ttft_s),
        _estimated("between tokens", found.itl_s),
        _estimated("whole answer", found.total_s),
    ]
    rate = found.output_tokens_per_s
    tokens = (f"{rate.value:,.0f} tokens/s", *_span(rate, lambda value: f"{value:,.0f}"))
    rows.append(("output", *tokens))
    if plan.replicas is not None:
        rows.append(("engines for the load", f"{plan.replicas:,}", *([""] if plan.calibration else [])))
    return rows


def _estimated(title: str, estimated: Estimated) -> tuple[str, ...]:
    return (title, milliseconds(estimated.value), *_span(estimated, milliseconds))


def _span(estimated: Estimated, shown: Callable[[float], str]) -> list[str]:
    if estimated.low is None or estimated.high is None:
        return []
    return [f"{shown(estimated.low)} … {shown(estimated.high)}"]


def _print_calibration(calibration: Calibration) -> None:
    typer.echo(
        f"Fitted to {calibration.steps:,} steps; on steps kept out of the fit off by "
        f"{percent(calibration.error_p50)} (p50), {percent(calibration.error_p90)} (p90).\n"
    )
    rows = [(TITLES.get(row.name, row.name), *_compared(row)) for row in calibration.measured]
    print_table(("RECENT TRAFFIC", "PREDICTED", "90 % WITHIN", "MEASURED"), rows, empty="No traffic to compare with.")
    typer.echo("")
    ranges = [(row.name.replace("_", " "), f"{row.low:,.0f} … {row.high:,.0f}") for row in calibration.ranges]
    _table(("SEEN PER STEP", ""), ranges)


def _compared(row: Compared) -> tuple[str, str, str]:
    if row.name == "running":
        return f"{row.predicted:,.0f}", "", f"{row.measured:,.0f}"
    within = f"{milliseconds(row.low)} … {milliseconds(row.high)}"
    return milliseconds(row.predicted), within, milliseconds(row.measured)
