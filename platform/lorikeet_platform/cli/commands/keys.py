"""`lorikeet keys`: your tenant's, or as administrator any tenant's. A secret is shown once, when its key is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lorikeet_platform.cli.commands.limits import parse_limits
from lorikeet_platform.cli.commands.options import (
    DEFAULT_ADMIN_URL,
    DEFAULT_API_URL,
    AdminUrl,
    ApiUrl,
    AsJson,
    OfTenant,
)
from lorikeet_platform.cli.console import CommandFailed, ExitCode, day_and_time, print_json, print_table, say

if TYPE_CHECKING:
    from lorikeet_platform.cli.side import Side

app = typer.Typer(help="Create, list, rotate and revoke API keys.", no_args_is_help=True)

KeyName = Annotated[str, typer.Argument(metavar="KEY", help="The key's id (key_…), or its name.")]
WithMade = Annotated[bool, typer.Option("--with-made", help="And the keys that were made with it.")]
DAY_S = 86_400


@app.command("create")
def create(
    name: Annotated[str, typer.Option("--name", help="What the key is for.")],
    tenant: OfTenant = None,
    scopes: Annotated[
        list[str] | None, typer.Option("--scope", help="What it may do; several times. Default: all but keys.")
    ] = None,
    adapters: Annotated[
        list[str] | None, typer.Option("--adapter", help="It may use this adapter and no other; several times.")
    ] = None,
    networks: Annotated[
        list[str] | None, typer.Option("--network", help="It works from this address or network only; several times.")
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, help="It expires after so many days.")] = None,
    limits: Annotated[
        list[str] | None, typer.Option("--limit", metavar="DIMENSION=VALUE", help="A limit of its own; several times.")
    ] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its secret, once."""
    import time

    from lorikeet_platform.cli.side import side_of

    body: dict[str, object] = {"name": name}
    if scopes:
        body["scopes"] = scopes
    if adapters:
        body["allowed_adapters"] = adapters
    if networks:
        body["ip_allowlist"] = networks
    if days is not None:
        body["expires_at"] = int(time.time()) + days * DAY_S
    if limits:
        body["limits"] = parse_limits(limits)
    with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
        key = side.post("/keys", body)
    _show_secret(key, as_json=as_json)


@app.command("list")
def list_all(
    tenant: OfTenant = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """List keys; secrets are not kept and cannot be shown."""
    from lorikeet_platform.cli.side import side_of

    with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
        keys = side.get("/keys")["data"]
    if as_json:
        print_json(keys)
        return
    rows = [
        (
            k["id"],
            k["name"],
            f"…{k['hint']}",
            _status(k),
            " ".join(k["scopes"]),
            day_and_time(k["created_at"]),
            day_and_time(k["expires_at"]),
            day_and_time(k["last_used_at"]),
        )
        for k in keys
    ]
    columns = ("ID", "NAME", "ENDS IN", "STATUS", "SCOPES", "CREATED", "EXPIRES", "LAST USED")
    print_table(columns, rows, empty="No keys yet.")


@app.command("self")
def show_own(api_url: ApiUrl = DEFAULT_API_URL, as_json: AsJson = False) -> None:
    """What your own key is and may do."""
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        key = api.get("/v1/keys/self")
    if as_json:
        print_json(key)
        return
    rows = [
        ("id", key["id"]),
        ("name", key["name"]),
        ("scopes", " ".join(key["scopes"])),
        ("adapters", "all" if key["allowed_adapters"] is None else " ".join(key["allowed_adapters"])),
        ("networks", "anywhere" if key["ip_allowlist"] is None else " ".join(key["ip_allowlist"])),
        ("expires", day_and_time(key["expires_at"]) or "never"),
    ]
    print_table(("", ""), rows, empty="")


@app.command("rotate")
def rotate(
    key: KeyName,
    tenant: OfTenant = None,
    overlap_hours: Annotated[
        int, typer.Option("--overlap-hours", min=0, max=168, help="How long the old secret works beside the new one.")
    ] = 24,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret and print it, once; limits, budgets and scopes go on."""
    from lorikeet_platform.cli.side import side_of

    with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
        made = side.post(f"/keys/{find_key(side, key)['id']}/rotate", {"overlap_hours": overlap_hours})
    _show_secret(made, as_json=as_json)


@app.command("revoke")
def revoke(
    key: KeyName,
    tenant: OfTenant = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept with the key.")] = None,
    with_made: WithMade = False,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Revoke a key: requests with it are refused from now on, and running answers end."""
    from lorikeet_platform.cli.side import side_of

    with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
        revoked = side.post(f"/keys/{find_key(side, key)['id']}/revoke", {"reason": reason, "with_made": with_made})
    _report_revoked(revoked, as_json=as_json)


@app.command("leaked")
def leaked(with_made: WithMade = False, admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """Revoke a key that was found somewhere: give the whole key on standard input, never as an argument."""
    from lorikeet_platform.cli.api import admin_api

    found = sys.stdin.readline().strip()
    if not found:
        raise CommandFailed(ExitCode.USAGE, "give the key on standard input: lorikeet keys leaked < FILE")
    with admin_api(admin_url) as api:
        revoked = api.post("/admin/v1/leaked_keys", {"key": found, "with_made": with_made})
    _report_revoked(revoked, as_json=as_json)


def find_key(side: Side, key: str) -> dict[str, Any]:
    """The key with that id, or the one in use with that name; raises CommandFailed."""
    keys: list[dict[str, Any]] = side.get("/keys")["data"]
    named = [k for k in keys if k["id"] == key] or [
        k for k in keys if k["name"] == key and k["status"] == "active" and k["replaced_at"] is None
    ]
    if not named:
        raise CommandFailed(ExitCode.USAGE, f"there is no key {key}")
    return named[0]


def _status(key: dict[str, Any]) -> str:
    if key["status"] == "active" and key["replaced_at"] is not None:
        return "replaced"
    return str(key["status"])


def _show_secret(key: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(key)
    else:
        say(f"Key {key['name']} ({key['id']}). It is shown only now:")
        typer.echo(key["secret"])


def _report_revoked(key: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(key)
    else:
        say(f"Key {key['name']} ({key['id']}) is revoked.")
        still_alive = [made for made in key["made_keys"] if made["status"] == "active"]
        if still_alive:
            names = ", ".join(f"{made['name']} ({made['id']})" for made in still_alive)
            say(f"Made with it, and working on: {names}. --with-made ends them, too.")
