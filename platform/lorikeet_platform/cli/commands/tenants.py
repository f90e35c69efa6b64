"""`lorikeet tenants`: through the admin API."""

from __future__ import annotations

from typing import Annotated

import typer

from lorikeet_platform.cli.commands.adapters.references import parse_version
from lorikeet_platform.cli.commands.options import DEFAULT_ADMIN_URL, AdminUrl, AsJson
from lorikeet_platform.cli.console import CommandFailed, ExitCode, day_and_time, print_json, print_table, say, segment

app = typer.Typer(help="Create, change, suspend tenants; stop a version of theirs.", no_args_is_help=True)

Slug = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's slug.")]
Version = Annotated[str, typer.Argument(metavar="NAME:NUMBER", help="The version.")]


@app.command("create")
def create(
    slug: Annotated[str, typer.Argument(help="Short name: 3 to 40 of a-z, 0-9 and '-'.")],
    name: Annotated[str | None, typer.Option("--name", help="Display name; the slug if left out.")] = None,
    weight: Annotated[float, typer.Option("--weight", help="Share of the engine, relative to other tenants.")] = 1.0,
    plan: Annotated[str, typer.Option("--plan", help="What it may do: the id of a plan.")] = "standard",
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Create a tenant."""
    from lorikeet_platform.cli.api import admin_api

    body: dict[str, object] = {"slug": slug, "weight": weight, "plan": plan}
    if name is not None:
        body["display_name"] = name
    with admin_api(admin_url) as api:
        tenant = api.post("/admin/v1/tenants", body)
    if as_json:
        print_json(tenant)
    else:
        say(f"Tenant {slug} created. Give it a key: lorikeet keys create --tenant {slug} --name NAME")


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
            t["plan"],
            f"{t['weight']:g}",
            t["adapters"],
            t["keys"],
            day_and_time(t["created_at"]),
        )
        for t in tenants
    ]
    print_table(
        ("TENANT", "NAME", "STATUS", "PLAN", "WEIGHT", "ADAPTERS", "KEYS", "CREATED"), rows, empty="No tenants yet."
    )


@app.command("show")
def show(slug: Slug, admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """Show a tenant: plan, weight, and the memory that it holds in the engine."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        tenant = api.get(f"/admin/v1/tenants/{segment(slug)}")
    if as_json:
        print_json(tenant)
        return
    memory = tenant["memory"]
    held = "unknown: no engine answers"
    if memory is not None:
        held = f"{memory['adapter_bytes']:,} bytes of adapters, {memory['kv_bytes']:,} bytes of KV cache"
    rows = [
        ("tenant", tenant["slug"]),
        ("name", tenant["display_name"]),
        ("status", tenant["status"]),
        ("plan", tenant["plan"]),
        ("weight", f"{tenant['weight']:g}"),
        ("keys make keys", "yes" if tenant["keys_make_keys"] else "no"),
        ("memory", held),
    ]
    print_table(("", ""), rows, empty="")


@app.command("update")
def update(
    slug: Slug,
    name: Annotated[str | None, typer.Option("--name", help="Display name.")] = None,
    weight: Annotated[float | None, typer.Option("--weight", help="Share of the engine.")] = None,
    plan: Annotated[str | None, typer.Option("--plan", help="The plan's id.")] = None,
    keys_make_keys: Annotated[
        bool | None, typer.Option("--keys-make-keys/--keys-make-no-keys", help="Whether keys may have keys:write.")
    ] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Change a tenant; what is not given stays as it is."""
    from lorikeet_platform.cli.api import admin_api

    given = {"display_name": name, "weight": weight, "plan": plan, "keys_make_keys": keys_make_keys}
    body = {field: value for field, value in given.items() if value is not None}
    if not body:
        raise CommandFailed(ExitCode.USAGE, "nothing to change: give --name, --weight, --plan or --keys-make-keys")
    with admin_api(admin_url) as api:
        tenant = api.patch(f"/admin/v1/tenants/{segment(slug)}", body)
    _report(tenant, f"Tenant {slug} is changed.", as_json=as_json)


@app.command("suspend")
def suspend(
    slug: Slug,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept in the audit log.")] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Stop serving a tenant: its requests are refused, running answers end; nothing of it is deleted."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        tenant = api.post(f"/admin/v1/tenants/{segment(slug)}/suspend", {"reason": reason})
    _report(tenant, f"Tenant {slug} is suspended.", as_json=as_json)


@app.command("resume")
def resume(slug: Slug, admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """Serve a suspended tenant again."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        tenant = api.post(f"/admin/v1/tenants/{segment(slug)}/resume", {})
    _report(tenant, f"Tenant {slug} is active.", as_json=as_json)


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


def _report(tenant: dict[str, object], sentence: str, *, as_json: bool) -> None:
    if as_json:
        print_json(tenant)
    else:
        say(sentence)


def _post_version(slug: str, version: str, action: str, body: dict[str, object], admin_url: str) -> dict[str, object]:
    from lorikeet_platform.cli.api import admin_api

    reference = parse_version(version)
    path = f"/admin/v1/tenants/{segment(slug)}/adapters/{segment(reference.adapter)}"
    with admin_api(admin_url) as api:
        answer: dict[str, object] = api.post(f"{path}/versions/{reference.number}/{action}", body)
        return answer
