"""`lorikeet usage`: tokens and costs by time, key, model and version; request by request; as a table, CSV or JSON."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

from lorikeet_platform.cli.commands.options import (
    DEFAULT_ADMIN_URL,
    DEFAULT_API_URL,
    AdminUrl,
    ApiUrl,
    AsJson,
    OfTenant,
)
from lorikeet_platform.cli.console import CommandFailed, ExitCode, day_and_time, print_json, print_table

app = typer.Typer(help="What was used.", no_args_is_help=True)

OfEverybody = Annotated[bool, typer.Option("--all", help="As administrator, of all tenants.")]
Buckets = Annotated[Literal["1m", "1h", "1d"], typer.Option("--by", help="Minutes, hours or days.")]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", help="key, model, adapter or version (with --all tenant); several times."),
]
Since = Annotated[str, typer.Option("--since", help="How far back, such as 90m, 24h or 30d.")]

_SPAN = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
_FIGURES = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens")


@app.command("show")
def show(
    tenant: OfTenant = None,
    everybody: OfEverybody = False,
    bucket: Buckets = "1d",
    group: Groups = None,
    since: Since = "30d",
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Add up requests and tokens."""
    with _asked(tenant, api_url=api_url, admin_url=admin_url, everybody=everybody) as side:
        _show(side, _params(bucket, group, since), csv=csv, as_json=as_json)


@app.command("costs")
def costs(
    tenant: OfTenant = None,
    everybody: OfEverybody = False,
    bucket: Buckets = "1d",
    group: Groups = None,
    since: Since = "30d",
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Add up what requests took of the engine: computing, reading, and holding memory.

    The last line has the sums. WASTED is the part of the prompts' computing that a preemption had dropped; UNKNOWN are
    requests whose cost nobody knows, because their engine was lost.
    """
    from lorikeet_platform.cli.quantities import cost_table

    with _asked(tenant, api_url=api_url, admin_url=admin_url, everybody=everybody) as side:
        found = side.get("/usage", **_params(bucket, group, since))
    if as_json:
        print_json(found)
        return
    groups: list[str] = found["group_by"]
    rows = [(day_and_time(row["bucket_start"]), *(_named(row, name) for name in groups)) for row in found["data"]]
    all_rows = [*found["data"], found] if len(rows) > 1 else found["data"]
    columns, cells = cost_table([(row["costs"], row["requests_without_cost"]) for row in all_rows])
    names = [*rows, ("ALL", *("" for _ in groups))]
    print_table(
        ("FROM", *(name.upper() for name in groups), *columns),
        [(*name, *row) for name, row in zip(names, cells, strict=False)],
        empty="Nothing was used in that time.",
    )


@app.command("records")
def records(
    tenant: OfTenant = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The newest so many.")] = 50,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """List single requests, the newest first."""
    from lorikeet_platform.cli.side import side_of

    with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
        found = side.pages("/usage/records", limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            day_and_time(r["admitted_at"]),
            r["request_id"],
            r["key_name"],
            r["model"],
            r["outcome"] or r["state"],
            r["prompt_tokens"],
            r["cached_tokens"],
            r["completion_tokens"],
        )
        for r in found
    ]
    columns = ("ADMITTED", "REQUEST", "KEY", "MODEL", "OUTCOME", "PROMPT", "CACHED", "ANSWER")
    print_table(columns, rows, empty="No requests yet.")


@contextmanager
def _asked(tenant: str | None, *, api_url: str, admin_url: str, everybody: bool) -> Iterator[Any]:
    """The side that is asked for usage: a tenant's, or everybody's."""
    from lorikeet_platform.cli.api import admin_api
    from lorikeet_platform.cli.side import Side, side_of

    if everybody:
        with admin_api(admin_url) as api:
            yield Side(api, "/admin/v1")
    else:
        with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
            yield side


def _params(bucket: str, group: list[str] | None, since: str) -> dict[str, str | int]:
    now = int(time.time())
    params: dict[str, str | int] = {"start": now - _seconds(since), "end": now + 1, "bucket": bucket}
    return params | ({"group_by": ",".join(group)} if group else {})


def _show(side: Any, params: dict[str, str | int], *, csv: bool, as_json: bool) -> None:
    if csv:
        with side.api.download(f"{side.prefix}/usage", **params, format="csv") as pieces:
            for piece in pieces:
                sys.stdout.write(piece.decode())
        return
    found = side.get("/usage", **params)
    if as_json:
        print_json(found)
        return
    groups: list[str] = found["group_by"]
    rows = [
        (
            day_and_time(row["bucket_start"]),
            *(_named(row, name) for name in groups),
            *(f"{row[name]:,}" for name in _FIGURES),
        )
        for row in found["data"]
    ]
    columns = ("FROM", *(name.upper() for name in groups), "REQUESTS", "ERRORS", "PROMPT", "CACHED", "ANSWER")
    print_table(columns, rows, empty="Nothing was used in that time.")


def _named(row: dict[str, Any], group: str) -> str:
    """What a group's cell says: keys by name, and the base model's own requests by a dash."""
    return str(row["key_name"] if group == "key" else row[group] or "–")


def _seconds(span: str) -> int:
    match = _SPAN.fullmatch(span)
    if match is None:
        raise CommandFailed(ExitCode.USAGE, f"{span}: write a time such as 90m, 24h or 30d")
    return int(match[1]) * _SECONDS[match[2]]
