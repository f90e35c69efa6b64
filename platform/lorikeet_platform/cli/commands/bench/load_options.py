"""The options of `bench serve`, each declared once; those that vLLM's `bench serve` has are called as there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lorikeet_platform.cli.commands.options import API_URL

WHAT, WHEN, HOW = "What is sent", "When it is sent", "How it is judged"


def _option(panel: str, help_: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=panel, **more)


Url = Annotated[str, typer.Option("--url", "--base-url", envvar=API_URL, help="The server's address.")]
Endpoint = Annotated[
    Literal["/v1/completions", "/v1/chat/completions"], typer.Option("--endpoint", help="The route that is asked.")
]
Model = Annotated[str, typer.Option("--model", help="Default: the first one that the server lists.")]
ApiKeyEnv = Annotated[
    str, typer.Option("--api-key-env", metavar="NAME", help="The environment's variable that holds the key.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The record and the report go here.")]

Workload = Annotated[Path | None, _option(WHAT, "A YAML file with tenants, keys, lengths and arrivals.")]
InputLen = Annotated[int | None, _option(WHAT, "Tokens of a prompt. (default: 1024)", min=1)]
OutputLen = Annotated[int | None, _option(WHAT, "Tokens that are asked for. (default: 128)", min=1)]
RangeRatio = Annotated[float | None, _option(WHAT, "Lengths vary evenly by this share. (default: 0)", min=0)]
PrefixLen = Annotated[int | None, _option(WHAT, "Tokens before each prompt, the same for all. (default: 0)", min=1)]
LoraModules = Annotated[
    list[str] | None,
    _option(WHAT, "Adapters to ask for, by chance and all alike. Apart by commas; vLLM's by spaces.", metavar="A,B"),
]
ZipfExponent = Annotated[
    float | None, _option(WHAT, "Or the first the most: exponent of their popularity. (default: 0)", min=0)
]
PromptsAs = Annotated[
    Literal["ids", "words"] | None,
    _option(WHAT, "Token ids or text. (default: ids for completions of a Lorikeet server)"),
]
VocabSize = Annotated[int | None, _option(WHAT, "Token ids are drawn below it. (default: 1000)", min=1)]
IgnoreEos = Annotated[bool, _option(WHAT, "Answers shall go on to their full length.", "--ignore-eos")]

RequestRate = Annotated[float | None, _option(WHEN, "Requests a second, whatever comes back; inf = all at once.")]
Burstiness = Annotated[float | None, _option(WHEN, "Shape of gamma pauses; below 1 is burstier. (default: 1)")]
Concurrency = Annotated[
    int | None,
    _option(
        WHEN,
        "Clients that wait for their answers. vLLM's --max-concurrency also caps a --request-rate; not here.",
        "--concurrency",
        "--max-concurrency",
        min=1,
    ),
]
Trace = Annotated[Path | None, _option(WHEN, "Requests as they were recorded, a JSON object a line.")]
NumPrompts = Annotated[int | None, _option(WHEN, "Requests in all. (default: 100)", min=1)]
Duration = Annotated[float | None, _option(WHEN, "Seconds in which requests are sent.", min=0.1)]
NumWarmups = Annotated[int, _option(WHEN, "Requests before those that count.", min=0)]
Seed = Annotated[int | None, _option(WHEN, "Of lengths, pauses and prompts. (default: 1)")]

PercentileMetrics = Annotated[str, _option(HOW, "Some of these.")]
MetricPercentiles = Annotated[str, _option(HOW, "Of each of them.")]
Goals = Annotated[
    list[str] | None,
    _option(HOW, "What a good request keeps, as in: ttft:500 tpot:50", "--goodput", metavar="METRIC:MS"),
]
MoreGoals = Annotated[list[str] | None, typer.Argument(hidden=True)]  # behind --goodput, as vLLM takes them
MetricsUrl = Annotated[str, _option(HOW, "The server's Prometheus metrics, read once a second.")]
EngineUrl = Annotated[
    str, _option(HOW, "A Lorikeet's admin API, for the KV pool and the device's peaks.", "--admin-url")
]
