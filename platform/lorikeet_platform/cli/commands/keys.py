"""`lorikeet keys`: through the admin API. A secret is shown once, when its key is made."""

from __future__ import annotations

from typing import Annotated

import typer

from lorikeet_platform.cli.commands.options import DEFAULT_ADMIN_URL, AdminUrl, AsJson
from lorikeet_platform.cli.console import day_and_time, print_json, print_table, say

app = typer.Typer(help="Create, list and revoke tenants' API keys.", no_args_is_help=True)

Tenant = Annotated[str, typer.Argument(help="The tenant's slug.")]


@app.command("create")
def create(
    tenant: Tenant,
    name: Annotated[str, typer.Option("--name", help="What the key is for.")],
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its secret, once."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        key = api.post(f"/admin/v1/tenants/{_segment(tenant)}/keys", {"name": name})
    if as_json:
        print_json(key)
    else:
        say(f"Key {key['name']} of {tenant} ({key['id']}). It is shown only now:")
        typer.echo(key["secret"])


@app.command("list")
def list_all(tenant: Tenant, admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """List a tenant's keys; secrets are not kept and cannot be shown."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        keys = api.get(f"/admin/v1/tenants/{_segment(tenant)}/keys")["data"]
    if as_json:
        print_json(keys)
        return
    rows = [
        (
            k["id"],
            k["name"],
            f"…{k['hint']}",
            k["status"],
            day_and_time(k["created_at"]),
            day_and_time(k["last_used_at"]),
        )
        for k in keys
    ]
    print_table(("ID", "NAME", "ENDS IN", "STATUS", "CREATED", "LAST USED"), rows, empty=f"{tenant} has no keys.")


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id (key_…), as listed.")],
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Revoke a key; requests with it are refused from now on."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        key = api.post(f"/admin/v1/keys/{_segment(key_id)}/revoke")
    if as_json:
        print_json(key)
    else:
        say(f"Key {key['name']} ({key['id']}) is revoked.")


def _segment(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
