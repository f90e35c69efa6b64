"""`lorikeet tenants`: through the admin API."""

from __future__ import annotations

from typing import Annotated

import typer

from lorikeet_platform.cli.commands.adapters.references import parse_version
from lorikeet_platform.cli.commands.options import DEFAULT_ADMIN_URL, AdminUrl, AsJson
from lorikeet_platform.cli.console import day_and_time, print_json, print_table, say

app = typer.Typer(help="Create and list tenants, stop a version of theirs.", no_args_is_help=True)

Slug = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's slug.")]
Version = Annotated[str, typer.Argument(metavar="NAME:NUMBER", help="The version.")]


@app.command("create")
def create(
    slug: Annotated[str, typer.Argument(help="Short name: 3 to 40 of a-z, 0-9 and '-'.")],
    name: Annotated[str | None, typer.Option("--name", help="Display name; the slug if left out.")] = None,
    weight: Annotated[float, typer.Option("--weight", help="Share of the engine, relative to other tenants.")] = 1.0,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Create a tenant."""
    from lorikeet_platform.cli.api import admin_api

    body: dict[str, object] = {"slug": slug, "weight": weight}
    if name is not None:
        body["display_name"] = name
    with admin_api(admin_url) as api:
        tenant = api.post("/admin/v1/tenants", body)
    if as_json:
        print_json(tenant)
    else:
        say(f"Tenant {tenant['slug']} created. Give it a key: lorikeet keys create {tenant['slug']} --name NAME")


@app.command("list")
def list_all(admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """List all tenants."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        tenants = api.get("/admin/v1/tenants")["data"]
    if as_json:
        print_json(tenants)
        return
    rows = [
        (
            t["slug"],
            t["display_name"],
            t["status"],
            f"{t['weight']:g}",
            t["adapters"],
            t["keys"],
            day_and_time(t["created_at"]),
        )
        for t in tenants
    ]
    print_table(("TENANT", "NAME", "STATUS", "WEIGHT", "ADAPTERS", "KEYS", "CREATED"), rows, empty="No tenants yet.")


@app.command("quarantine")
def quarantine(
    slug: Slug,
    version: Version,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept with the version.")] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Stop a tenant's version at once: what runs on it ends, its aliases go back to the version before."""
    quarantined = _post_version(slug, version, "quarantine", {"reason": reason}, admin_url)
    if as_json:
        print_json(quarantined)
    else:
        say(f"{version} of {slug} is in quarantine.")


@app.command("release")
def release(
    slug: Slug,
    version: Version,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Let a version out of quarantine; its aliases stay where they are."""
    released = _post_version(slug, version, "release", {}, admin_url)
    if as_json:
        print_json(released)
    else:
        say(f"{version} of {slug} is {released['state']}.")


def _post_version(slug: str, version: str, action: str, body: dict[str, object], admin_url: str) -> dict[str, object]:
    from urllib.parse import quote

    from lorikeet_platform.cli.api import admin_api

    reference = parse_version(version)
    path = f"/admin/v1/tenants/{quote(slug, safe='')}/adapters/{quote(reference.adapter, safe='')}"
    with admin_api(admin_url) as api:
        answer: dict[str, object] = api.post(f"{path}/versions/{reference.number}/{action}", body)
        return answer
