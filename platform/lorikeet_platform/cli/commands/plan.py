"""`lorikeet plan`: what a model on a device can carry, and which settings it wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lorikeet_platform.cli.commands.options import DEFAULT_ADMIN_URL, AdminUrl, AsJson
from lorikeet_platform.cli.console import CommandFailed, ExitCode, print_json

if TYPE_CHECKING:
    from lorikeet_platform.planning.schemas import CapacityPlan, PlanQuestion

Panel = "Settings of the engine to plan with"
Knob = Annotated[int | None, typer.Option(min=1, rich_help_panel=Panel)]
Model = Annotated[
    str | None,
    typer.Option("--model", help="A shipped model, such as qwen3-8b, or a config.json; the engine's without it."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="rtx4090, h200, cpu2, or a profile's path; the engine's without it.")
]
Module = Annotated[
    list[str] | None, typer.Option("--module", help="A module they adapt; several times. q_proj and v_proj without it.")
]
Live = Annotated[bool, typer.Option("--live", help="Calibrate by what the running engine has done, and compare.")]

DEFAULT_RANK = 16


def plan(
    context: typer.Context,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Mean length of a prompt, in tokens.")],
    output: Annotated[int, typer.Option("--output", min=1, help="Mean length of an answer, in tokens.")],
    concurrency: Annotated[int | None, typer.Option("--concurrency", min=1, help="Requests at once; or else")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="requests a second.")] = None,
    model: Model = None,
    device: Device = None,
    adapters: Annotated[int | None, typer.Option("--adapters", min=1, help="Adapters that share the load.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", min=1, help="Rank of the adapters; 16 without it.")] = None,
    module: Module = None,
    live: Live = False,
    max_num_seqs: Knob = None,
    max_num_batched_tokens: Knob = None,
    kv_cache_bytes: Knob = None,
    block_size: Knob = None,
    adapter_pool_bytes: Knob = None,
    gpu_memory_utilization: Annotated[float | None, typer.Option(rich_help_panel=Panel)] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Size memory, batch and adapters for a workload, and estimate what its users see.

    With --model and --device no server is needed; what is left out is the running engine's, asked of the admin API.
    """
    knobs = {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "kv_cache_bytes": kv_cache_bytes,
        "block_size": block_size,
        "adapter_pool_bytes": adapter_pool_bytes,
        "gpu_memory_utilization": gpu_memory_utilization,
    }
    body: dict[str, Any] = {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "concurrency": concurrency,
        "requests_per_s": rate,
        "knobs": {name: value for name, value in knobs.items() if value is not None},
        "live": live,
    }
    if adapters is not None:
        body["adapters"] = {"count": adapters, "rank": rank or DEFAULT_RANK, "modules": module or None}
    elif module or rank is not None:
        option = "--module" if module else "--rank"
        raise CommandFailed(ExitCode.USAGE, f"{option} needs --adapters, how many there are")
    if model is not None and device is not None and not live:
        _check_asks_no_server(context)
        found = _plan_here(_question(body), model, device)
    else:
        found = _plan_there(_question(body | {"model": model, "device": device}), admin_url)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    from lorikeet_platform.cli.plan_report import print_plan

    print_plan(found)


def _check_asks_no_server(context: typer.Context) -> None:
    source = context.get_parameter_source("admin_url")
    if source is not None and source.name == "COMMANDLINE":
        raise CommandFailed(
            ExitCode.USAGE, "--admin-url is of no use with --model and --device: such a plan asks no server"
        )


def _question(body: dict[str, Any]) -> PlanQuestion:
    from pydantic import ValidationError

    from lorikeet_platform.planning.schemas import PlanQuestion

    try:
        return PlanQuestion.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise CommandFailed(ExitCode.USAGE, f"{name}: {first['msg']}") from None


def _plan_here(question: PlanQuestion, model: str, device: str) -> CapacityPlan:
    from pathlib import Path

    from lorikeet_platform.errors import PlatformError
    from lorikeet_platform.planning.planner import load_of, make_plan
    from lorikeet_platform.planning.subject import new_subject, shipped_device, shipped_model

    if Path(model).is_dir():
        model = str(Path(model) / "config.json")
    try:
        load = load_of(question)
        knobs = question.knobs.model_dump(exclude_none=True)
        subject = new_subject(model, shipped_model(model), shipped_device(device), knobs, load.context)
        return make_plan(load, subject)
    except PlatformError as error:
        raise CommandFailed(ExitCode.USAGE, error.message) from None


def _plan_there(question: PlanQuestion, admin_url: str) -> CapacityPlan:
    from lorikeet_platform.cli.api import admin_api
    from lorikeet_platform.planning.schemas import CapacityPlan

    with admin_api(admin_url) as api:
        return CapacityPlan.model_validate(
            api.post("/admin/v1/plan", question.model_dump(mode="json", exclude_none=True))
        )
