"""`lorikeet adapters list, show, versions`: what there is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lorikeet_platform.cli.commands.adapters.references import (
    adapter_path,
    alias_text,
    mebibytes,
    parse_reference,
)
from lorikeet_platform.cli.commands.options import DEFAULT_API_URL, ApiUrl, AsJson
from lorikeet_platform.cli.console import day_and_time, print_json, print_table, say


def list_all(api_url: ApiUrl = DEFAULT_API_URL, as_json: AsJson = False) -> None:
    """List your adapters."""
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        adapters = api.get("/v1/adapters")["data"]
    if as_json:
        print_json(adapters)
        return
    rows = [
        (a["name"], "; ".join(map(alias_text, a["aliases"])), len(a["versions"]), _newest_state(a)) for a in adapters
    ]
    print_table(("ADAPTER", "ALIASES", "VERSIONS", "NEWEST"), rows, empty="No adapters yet.")


def show(
    name: Annotated[str, typer.Argument(help="An adapter, or one version of it: NAME:NUMBER.")],
    api_url: ApiUrl = DEFAULT_API_URL,
    as_json: AsJson = False,
) -> None:
    """Show an adapter with its versions, or a version with its certificate."""
    from lorikeet_platform.cli.api import tenant_api

    reference = parse_reference(name)
    with tenant_api(api_url) as api:
        found = api.get(reference.path)
    if as_json:
        print_json(found)
    elif reference.number is None:
        say(f"{found['name']}: {'; '.join(map(alias_text, found['aliases'])) or 'no alias'}")
        _print_versions(found["versions"])
    else:
        _print_version(found)


def versions(
    name: Annotated[str, typer.Argument(help="The adapter's name.")],
    api_url: ApiUrl = DEFAULT_API_URL,
    as_json: AsJson = False,
) -> None:
    """List an adapter's versions, newest first."""
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        found = api.get(f"{adapter_path(name)}/versions")["data"]
    if as_json:
        print_json(found)
    else:
        _print_versions(found)


def _print_versions(found: list[dict[str, Any]]) -> None:
    rows = [
        (
            v["number"],
            v["state"],
            v["rank"],
            mebibytes(v["serving_bytes"]),
            day_and_time(v["created_at"]),
            v["reject_code"] or v["reject_detail"] or v["retire_reason"],
            " ".join(v["target_modules"]),
        )
        for v in found
    ]
    print_table(("VERSION", "STATE", "RANK", "ON DEVICE", "CREATED", "REASON", "MODULES"), rows, empty="No versions.")


def _print_version(version: dict[str, Any]) -> None:
    from lorikeet_platform.cli.commands.adapters.certificates import certificate_rows

    rows: list[tuple[str, object]] = [
        ("state", version["state"]),
        ("created", day_and_time(version["created_at"])),
        ("digest", version["digest"]),
        ("on the device", mebibytes(version["serving_bytes"])),
        ("description", version["description"]),
        ("rejected for", version["reject_code"]),
        ("", version["reject_detail"]),
        ("retired because", version["retire_reason"]),
        ("purged after", day_and_time(version["purge_after"])),
        *(("warning", warning) for warning in version["warnings"]),
    ]
    if version["certificate"] is not None:
        rows += certificate_rows(version["certificate"])
    label = f"{version['adapter']}:{version['number']}"
    print_table((label, ""), [row for row in rows if row[1] not in (None, "")], empty="")


def _newest_state(adapter: dict[str, Any]) -> str:
    newest = max(adapter["versions"], key=lambda version: int(version["number"]), default=None)
    return f"{newest['number']} {newest['state']}" if newest else ""
