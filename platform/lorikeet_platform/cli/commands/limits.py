"""`lorikeet limits` and `lorikeet plans`: what tenants and keys may do, and who said so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lorikeet_platform.cli.commands.options import (
    DEFAULT_ADMIN_URL,
    DEFAULT_API_URL,
    AdminUrl,
    ApiUrl,
    AsJson,
    OfTenant,
)
from lorikeet_platform.cli.console import CommandFailed, ExitCode, print_json, print_table, say, segment

app = typer.Typer(help="Show and set what a tenant or a key may do.", no_args_is_help=True)
plans = typer.Typer(help="Show, make and change plans.", no_args_is_help=True)

OfKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Of one key (its id, or its name) instead of the tenant.")
]
Changes = Annotated[
    list[str],
    typer.Argument(
        metavar="DIMENSION=VALUE…",
        help="Such as rpm=600, rpm=600:50 (with a burst), adapter_bytes=20GiB, tpm=none (no limit of its own).",
    ),
]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_NUMBER = re.compile(r"([0-9]+)([A-Za-z]*)")


@app.command("show")
def show(
    tenant: OfTenant = None,
    key: OfKey = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """What is in force, and whether key, tenant or plan said so: the smallest of the three counts."""
    from lorikeet_platform.cli.side import side_of

    with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
        found = side.get(_path(side, key))
    _print(found, as_json=as_json)


@app.command("set")
def set_limits(
    changes: Changes,
    tenant: OfTenant = None,
    key: OfKey = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Set limits of a tenant (as administrator) or of a key; what is not named stays as it is."""
    from lorikeet_platform.cli.side import side_of

    body = {"limits": parse_limits(changes)}
    if tenant is None and key is None:
        raise CommandFailed(ExitCode.USAGE, "whose limits? --tenant SLUG, --key KEY, or both")
    with side_of(tenant, api_url=api_url, admin_url=admin_url) as side:
        found = side.put(_path(side, key), body)
    _print(found, as_json=as_json)


@plans.command("list")
def list_plans(admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """List the plans; every tenant is on one."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        found = api.get("/admin/v1/plans")["data"]
    if as_json:
        print_json(found)
        return
    print_table(("PLAN", "NAME", "TENANTS"), [(p["id"], p["display_name"], p["tenants"]) for p in found], empty="")


@plans.command("show")
def show_plan(
    plan: Annotated[str, typer.Argument(help="The plan's id.")],
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """What a plan allows."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        _print_plan(api.get(f"/admin/v1/plans/{segment(plan)}"), as_json=as_json)


@plans.command("create")
def create_plan(
    plan: Annotated[str, typer.Argument(help="Its id, such as `gold`.")],
    limits: Annotated[
        list[str] | None, typer.Argument(metavar="[DIMENSION=VALUE…]", help="What is not named is as in `standard`.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Display name; the id if left out.")] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Make a plan."""
    from lorikeet_platform.cli.api import admin_api

    body: dict[str, object] = {"id": plan, "limits": parse_limits(limits or [])}
    if name is not None:
        body["display_name"] = name
    with admin_api(admin_url) as api:
        _print_plan(api.post("/admin/v1/plans", body), as_json=as_json)


@plans.command("set")
def set_plan(
    plan: Annotated[str, typer.Argument(help="The plan's id.")],
    changes: Changes,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    as_json: AsJson = False,
) -> None:
    """Change a plan, and with it what its tenants may do at once."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        _print_plan(api.put(f"/admin/v1/plans/{segment(plan)}", {"limits": parse_limits(changes)}), as_json=as_json)


def parse_limits(changes: Sequence[str]) -> dict[str, dict[str, int | None] | None]:
    """`rpm=600:50` and the like as the API takes them; raises CommandFailed."""
    parsed: dict[str, dict[str, int | None] | None] = {}
    for change in changes:
        dimension, is_set, value = change.partition("=")
        if not is_set or not dimension:
            raise CommandFailed(ExitCode.USAGE, f"{change}: write DIMENSION=VALUE, such as rpm=600")
        if dimension in parsed:
            raise CommandFailed(ExitCode.USAGE, f"{dimension} is given twice")
        if value == "none":
            parsed[dimension] = None
            continue
        figure, has_burst, burst = value.partition(":")
        parsed[dimension] = {
            "value": _number(change, figure),
            "burst": _number(change, burst) if has_burst else None,
        }
    return parsed


def _number(change: str, text: str) -> int:
    match = _NUMBER.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        hint = "a whole number, with K, M, G, T, KiB, MiB or GiB behind it if you like"
        raise CommandFailed(ExitCode.USAGE, f"{change}: {text or 'nothing'} is not {hint}")
    return int(match[1]) * unit


def _path(side: Any, key: str | None) -> str:
    if key is None:
        return "/limits"
    from lorikeet_platform.cli.commands.keys import find_key

    return f"/keys/{find_key(side, key)['id']}/limits"


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        (dimension, _shown(limit), limit["origin"], _shown(limit["own"]), _shown(limit["plan"]))
        for dimension, limit in found["limits"].items()
    ]
    print_table(("LIMIT", "IN FORCE", "SAID BY", "OWN", "PLAN"), rows, empty="")


def _print_plan(plan: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    say(f"{plan['id']}: {plan['display_name']}")
    print_table(("LIMIT", "VALUE"), [(name, _shown(limit)) for name, limit in plan["limits"].items()], empty="")


def _shown(limit: dict[str, Any] | None) -> str:
    if limit is None:
        return ""
    burst = f", {limit['burst']:,} at once" if limit["burst"] else ""
    return f"{limit['value']:,}{burst}"
