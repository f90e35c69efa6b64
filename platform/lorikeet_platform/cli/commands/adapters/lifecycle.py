"""`lorikeet adapters retire, restore, retry, delete`: the end of a version, and its way back."""

from __future__ import annotations

from typing import Annotated

import typer

from lorikeet_platform.cli.commands.adapters.references import VersionReference, parse_reference, parse_version
from lorikeet_platform.cli.commands.options import DEFAULT_API_URL, ApiUrl, AsJson
from lorikeet_platform.cli.console import day_and_time, print_json, say

Version = Annotated[str, typer.Argument(metavar="NAME:NUMBER", help="The version.")]
Why = Annotated[str | None, typer.Option("--reason", help="Kept with the version.")]


def retire(
    version: Version,
    reason: Why = None,
    force: Annotated[bool, typer.Option("--force", help="End what runs on it, instead of waiting for it.")] = False,
    api_url: ApiUrl = DEFAULT_API_URL,
    as_json: AsJson = False,
) -> None:
    """Take a version out of service: running requests end, new ones are refused; it can be restored for some days."""
    retired = _post(parse_version(version), "retire", {"reason": reason, "force": force}, api_url)
    if as_json:
        print_json(retired)
    else:
        say(f"{version} is retired; it can be restored until {day_and_time(retired['purge_after'])}.")


def restore(version: Version, api_url: ApiUrl = DEFAULT_API_URL, as_json: AsJson = False) -> None:
    """Put a retired version into service again."""
    restored = _post(parse_version(version), "restore", {}, api_url)
    if as_json:
        print_json(restored)
    else:
        say(f"{version} is {restored['state']}.")


def retry(version: Version, api_url: ApiUrl = DEFAULT_API_URL, as_json: AsJson = False) -> None:
    """Check a version again whose check failed by no fault of its own."""
    retried = _post(parse_version(version), "retry", {}, api_url)
    if as_json:
        print_json(retried)
    else:
        say(f"{version} is {retried['state']}.")


def delete(
    name: Annotated[str, typer.Argument(metavar="NAME[:NUMBER]", help="An adapter with all versions, or one version.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    api_url: ApiUrl = DEFAULT_API_URL,
) -> None:
    """Delete an adapter or one version, for good. No alias may point at the version."""
    from lorikeet_platform.cli.api import tenant_api

    reference = parse_reference(name)
    if not yes:
        typer.confirm(f"Delete {name} for good?", abort=True, err=True)
    with tenant_api(api_url) as api:
        api.delete(reference.path)
    say(f"{name} is deleted.")


def _post(reference: VersionReference, action: str, body: dict[str, object], api_url: str) -> dict[str, object]:
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        version: dict[str, object] = api.post(f"{reference.path}/{action}", body)
        return version
