"""`lorikeet adapters alias`: which version a name means, for whom, and what it meant before."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from lorikeet_platform.cli.commands.adapters.references import adapter_path, shares_text
from lorikeet_platform.cli.commands.options import DEFAULT_API_URL, ApiUrl, AsJson
from lorikeet_platform.cli.console import CommandFailed, ExitCode, day_and_time, print_json, print_table, say

app = typer.Typer(help="Point aliases at versions, share requests out, go back.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The adapter's name.")]
AliasName = Annotated[str, typer.Argument(metavar="ALIAS", help="The alias; NAME alone means `live`.")]
Why = Annotated[str | None, typer.Option("--reason", help="Kept in the history.")]

_TARGET = re.compile(r"([1-9][0-9]{0,8})(?:=([1-9][0-9]?|100))?")


@app.command("set")
def set_alias(
    name: Name,
    alias: AliasName,
    targets: Annotated[
        list[str], typer.Argument(metavar="NUMBER[=PERCENT]…", help="One version, or several with their shares.")
    ],
    sticky: Annotated[
        Literal["none", "user"], typer.Option("--sticky", help="user: the same `user` gets the same version.")
    ] = "none",
    max_error_rate: Annotated[
        float | None, typer.Option(help="Roll back by itself when more of the canary's requests fail (0 to 1).")
    ] = None,
    max_ttft_ratio: Annotated[
        float | None, typer.Option(help="Roll back when its first tokens take this many times as long (p95).")
    ] = None,
    min_requests: Annotated[
        int | None, typer.Option(help="Requests before the canary is judged; 200 when not given.")
    ] = None,
    reason: Why = None,
    if_revision: Annotated[int | None, typer.Option(help="Only if the alias still has this revision.")] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    as_json: AsJson = False,
) -> None:
    """Point an alias at a version, or share its requests out: `alias set pirate live 3=90 4=10`.

    The engine loads a new version before the alias moves.
    """
    guard = _parse_guard(max_error_rate, max_ttft_ratio, min_requests)
    body = {"targets": _parse_targets(targets), "sticky": sticky, "guard": guard, "reason": reason}
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        changed = api.put(_path(name, alias), body, if_revision=if_revision)
    _report(name, changed, as_json=as_json)


@app.command("rollback")
def rollback(
    name: Name,
    alias: AliasName = "live",
    to: Annotated[int | None, typer.Option("--to", help="A revision of the history, not the one before.")] = None,
    reason: Why = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    as_json: AsJson = False,
) -> None:
    """Point an alias at what it pointed at before."""
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        changed = api.post(f"{_path(name, alias)}/rollback", {"to_revision": to, "reason": reason})
    _report(name, changed, as_json=as_json)


@app.command("history")
def history(name: Name, alias: AliasName = "live", api_url: ApiUrl = DEFAULT_API_URL, as_json: AsJson = False) -> None:
    """What an alias pointed at, the newest first."""
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        revisions = api.get(f"{_path(name, alias)}/history")["data"]
    if as_json:
        print_json(revisions)
        return
    rows = [
        (
            r["revision"],
            shares_text(r["targets"]) or "removed",
            r["sticky"],
            r["actor"],
            day_and_time(r["at"]),
            r["reason"],
        )
        for r in revisions
    ]
    print_table(("REVISION", "VERSIONS", "STICKY", "BY", "AT", "REASON"), rows, empty="No such alias, now or ever.")


@app.command("list")
def list_all(name: Name, api_url: ApiUrl = DEFAULT_API_URL, as_json: AsJson = False) -> None:
    """List an adapter's aliases."""
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        aliases = api.get(f"{adapter_path(name)}/aliases")["data"]
    if as_json:
        print_json(aliases)
        return
    rows = [
        (a["alias"], shares_text(a["targets"]), a["sticky"], _guard(a["guard"]), a["revision"], a["updated_by"])
        for a in aliases
    ]
    print_table(("ALIAS", "VERSIONS", "STICKY", "GUARD", "REVISION", "BY"), rows, empty="No aliases.")


@app.command("remove")
def remove(name: Name, alias: AliasName, api_url: ApiUrl = DEFAULT_API_URL) -> None:
    """Remove an alias; requests that use it are refused from now on."""
    from lorikeet_platform.cli.api import tenant_api

    with tenant_api(api_url) as api:
        api.delete(_path(name, alias))
    say(f"{name}@{alias} is removed.")


def _parse_targets(texts: list[str]) -> list[dict[str, int]]:
    """One version without a share gets all; several need theirs."""
    targets = []
    for text in texts:
        found = _TARGET.fullmatch(text)
        if found is None or (found[2] is None and len(texts) > 1):
            raise CommandFailed(ExitCode.USAGE, f"{text!r}: versions are named as 7, or with shares as 7=90 8=10")
        targets.append({"version": int(found[1]), "weight": int(found[2] or 100)})
    return targets


def _parse_guard(
    max_error_rate: float | None, max_ttft_ratio: float | None, min_requests: int | None
) -> dict[str, float] | None:
    bounds = {"max_error_rate": max_error_rate, "max_ttft_ratio": max_ttft_ratio}
    guard = {name: bound for name, bound in bounds.items() if bound is not None}
    if min_requests is None:
        return guard or None
    if not guard:
        raise CommandFailed(ExitCode.USAGE, "--min-requests needs --max-error-rate or --max-ttft-ratio")
    return {**guard, "min_requests": min_requests}


def _report(name: str, alias: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(alias)
    else:
        say(f"{name}@{alias['alias']} points at {shares_text(alias['targets'])} (revision {alias['revision']}).")


def _guard(guard: dict[str, Any] | None) -> str:
    if guard is None:
        return ""
    rules = []
    if guard["max_error_rate"] is not None:
        rules.append(f"errors ≤ {100 * guard['max_error_rate']:g} %")
    if guard["max_ttft_ratio"] is not None:
        rules.append(f"first token ≤ {guard['max_ttft_ratio']:g}×")
    return f"{', '.join(rules)} after {guard['min_requests']} requests"


def _path(name: str, alias: str) -> str:
    return f"{adapter_path(name)}/aliases/{quote(alias, safe='')}"
