"""`lorikeet audit`: who changed what."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lorikeet_platform.cli.commands.options import (
    DEFAULT_ADMIN_URL,
    DEFAULT_API_URL,
    AdminUrl,
    ApiUrl,
    AsJson,
    OfTenant,
)
from lorikeet_platform.cli.console import day_and_time, print_json, print_table

app = typer.Typer(help="Who changed what.", no_args_is_help=True)


@app.callback()
def _audit_group() -> None:
    """Keeps `list` a sub-command."""


@app.command("list")
def list_events(
    tenant: OfTenant = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="As administrator, of all tenants and the platform.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The newest so many.")] = 50,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """List changes, the newest first."""
    from lorikeet_platform.cli.api import admin_api
    from lorikeet_platform.cli.side import Side, side_of

    if everybody:
        with admin_api(admin_url) as api:
            events = Side(api, "/admin/v1").pages("/audit_events", limit=limit)
    else:
        with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
            events = side.pages("/audit_events", limit=limit)
    if as_json:
        print_json(events)
        return
    rows = [
        (day_and_time(e["at"]), e["actor"], e["action"], e["subject"], json.dumps(e["details"]) if e["details"] else "")
        for e in events
    ]
    print_table(("WHEN", "WHO", "WHAT", "OF", "DETAILS"), rows, empty="Nothing was changed yet.")
