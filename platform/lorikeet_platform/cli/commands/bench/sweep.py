"""`lorikeet bench sweep`: setups that differ in one thing, simulated or on a real engine, and what they trade."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lorikeet_platform.cli.console import CommandFailed, ExitCode, say

if TYPE_CHECKING:
    from lorikeet_engine.experiments.record import RunRecord
    from lorikeet_engine.experiments.scenarios.setup import Scenario
    from lorikeet_engine.simulation.static_batching import StaticRun

SWEEPS = "lengths, lengths-alone, budgets, pools, prefixes, concurrency"
Told = Callable[[], None]


def sweep(
    scenario: Annotated[str, typer.Argument(help=f"One of {SWEEPS}, or a YAML file with a grid of one's own.")],
    on: Annotated[
        Literal["simulator", "engine"], typer.Option("--on", help="A device that is arithmetic, or a real engine.")
    ] = "simulator",
    model: Annotated[
        str | None,
        typer.Option("--model", help="Instead of the sweep's own: on an engine a directory, package:NAME or a hub id."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Instead of the sweep's own: on an engine cpu, cuda or auto.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Or on a running server, by a file whose grid is over load alone.")
    ] = None,
    metrics_url: Annotated[str, typer.Option("--metrics-url", help="That server's Prometheus metrics.")] = "",
    static: Annotated[
        int | None,
        typer.Option("--static", min=1, help="On the simulator: also serve the requests in static batches so large."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the record here.")] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="Draw the report into this folder.")] = None,
) -> None:
    """Run a sweep over engine or load settings and show what its points trade for each other."""
    from lorikeet_engine.experiments.record import write_record
    from lorikeet_engine.experiments.scenarios.choice import choose_scenario
    from lorikeet_engine.simulation.workload.strict_records import DescriptionError
    from lorikeet_platform.cli.commands.bench.sweep_tables import print_static, print_sweep
    from lorikeet_platform.tools.bench.remarks import remarks_of

    _refuse_contradictions(on=on, url=url, metrics_url=metrics_url, device=device, static=static)
    try:
        chosen = choose_scenario(scenario, "engine" if url else on, model=model, device=device)
        with _progress(chosen) as told:
            if url:
                record, troubles = _served(chosen, url, model or "", metrics_url, told)
            else:
                troubles = []
                record = _simulated(chosen, told) if on == "simulator" else _computed(chosen, scenario, told)
        runs = _in_static_batches(chosen, static) if static else []
    except DescriptionError as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from None
    print_sweep(record)
    if static:
        print_static(record, runs, static)
    for trouble in (*troubles, *remarks_of(record)):
        say(trouble)
    if json_file:
        write_record(record, json_file)
        say(f"Record written to {json_file}.")
    if figures:
        from lorikeet_platform.tools.bench.report import draw

        draw(record, figures)
        say(f"Report drawn into {figures}.")
    if unserved := [point for point in record.points if not any(r.outcome == "ok" for r in point.requests)]:
        raise CommandFailed(ExitCode.FAILED, f"nothing was served at {len(unserved)} of {len(record.points)} points")


def _refuse_contradictions(
    *, on: str, url: str | None, metrics_url: str, device: str | None, static: int | None
) -> None:
    if static and (on == "engine" or url):
        raise CommandFailed(ExitCode.USAGE, "--static is a mode of the simulator; an engine has no static batches")
    if url and (on == "engine" or device):
        raise CommandFailed(ExitCode.USAGE, "--url is a running server, on its own device; leave out --on and --device")
    if metrics_url and not url:
        raise CommandFailed(ExitCode.USAGE, "--metrics-url is a running server's; add its --url")


@contextmanager
def _progress(scenario: Scenario) -> Iterator[Told]:
    """A bar over the points on a terminal, nothing otherwise; results are what the command is for."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{scenario.name}: {scenario.model} on {scenario.device}", total=len(scenario.setups))
        yield lambda: progress.advance(task)


def _simulated(scenario: Scenario, told: Told) -> RunRecord:
    from lorikeet_engine.experiments.sweep import run_sweep
    from lorikeet_engine.experiments.targets.on_simulator import simulator_target

    return run_sweep(scenario, simulator_target(scenario.model, scenario.device), lambda _: told())


def _served(scenario: Scenario, url: str, model: str, metrics_url: str, told: Told) -> tuple[RunRecord, list[str]]:
    """With the key of the environment; answers are asked for in their full length. Also what went wrong where."""
    import os

    from lorikeet_engine.experiments.record import Machine
    from lorikeet_engine.experiments.sweep import run_sweep
    from lorikeet_platform.cli.commands.bench.serve import API_KEY, failures_of, failures_told, missed_of
    from lorikeet_platform.tools.bench.load.target import find_target
    from lorikeet_platform.tools.bench.server_target import ServerTarget

    with failures_told():
        target = find_target(
            url,
            api_key=os.environ.get(API_KEY, "").strip(),
            model=model,
            endpoint="/v1/completions",
            prompts=None,
            metrics_url=metrics_url,
        )
        server = ServerTarget(target, Machine(model=target.model, device=target.shown_url))
        record = run_sweep(scenario, server, lambda _: told())
    places = [f"{record.axis} {point.setup.get(record.axis)}: " if record.axis else "" for point in record.points]
    told_by = zip(places, server.runs, strict=True)
    return record, [place + said for place, run in told_by for said in (*failures_of(run), *missed_of(run))]


def _computed(scenario: Scenario, name_or_file: str, told: Told) -> RunRecord:
    """By a child process, which needs torch; this one must start without it."""
    import subprocess
    from tempfile import TemporaryDirectory

    from lorikeet_engine.experiments.record import read_record
    from lorikeet_platform.cli.configuration import load_settings

    models_dir = load_settings().data_dir / "models"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "record.json"
        arguments = [sys.executable, "-m", "lorikeet_engine.experiments", name_or_file, "--json", str(file)]
        arguments += ["--model", scenario.model, "--device", scenario.device, "--models-dir", str(models_dir)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                for line in child.stdout:
                    json.loads(line)
                    told()
                status = child.wait()
            except BaseException:
                child.kill()
                raise
        if status:
            raise CommandFailed(ExitCode.FAILED, "the sweep did not finish; the engine has said why")
        return read_record(file)


def _in_static_batches(scenario: Scenario, batch_size: int) -> list[StaticRun]:
    from lorikeet_engine.experiments.targets.on_simulator import simulator_target

    target = simulator_target(scenario.model, scenario.device)
    return [target.run_static(setup, batch_size) for setup in scenario.setups]
