"""`lorikeet doctor`: what is wrong with the engine, why, what it costs, and which setting helps."""

from __future__ import annotations

from typing import Any

import typer

from lorikeet_platform.cli.commands.options import DEFAULT_ADMIN_URL, AdminUrl, AsJson
from lorikeet_platform.cli.console import ExitCode, print_json, say

INDENT = "  "
WIDEST = 100  # columns; longer lines are hard to read


def doctor(admin_url: AdminUrl = DEFAULT_ADMIN_URL, as_json: AsJson = False) -> None:
    """Look for known symptoms; ends with 11 when there are any, with 12 when too little was seen to tell."""
    from lorikeet_platform.cli.api import admin_api

    with admin_api(admin_url) as api:
        answer = api.get("/admin/v1/findings")
    if as_json:
        print_json(answer)
    else:
        _print(answer)
    if answer["findings"]:
        raise typer.Exit(ExitCode.FINDINGS)
    if answer["examined_s"] is None:
        raise typer.Exit(ExitCode.NOT_EXAMINED)


def _print(answer: dict[str, Any]) -> None:
    findings = answer["findings"]
    if answer["at"] is None:
        say("The gateway has not looked at the engine yet; try again in a few seconds.")
        return
    for finding in findings:
        _print_finding(finding)
    seen = answer["examined_s"]
    looked = "too little was seen of the engine to tell more" if seen is None else f"{seen:.0f} s were looked at"
    if findings:
        say(f"{len(findings)} {'finding' if len(findings) == 1 else 'findings'}; {looked}.")
    else:
        say(f"Nothing is wrong; {looked}." if seen is not None else f"No finding yet: {looked}; try again later.")


def _print_finding(finding: dict[str, Any]) -> None:
    is_critical = finding["severity"] == "critical"
    word = typer.style(finding["severity"].upper(), fg="red" if is_critical else "yellow", bold=True)
    typer.echo(f"{word}  {typer.style(finding['title'], bold=True)}  ({finding['rule']})")
    _print_text(finding["explanation"])
    widest = max((len(item["label"]) for item in finding["evidence"]), default=0)
    for item in finding["evidence"]:
        typer.echo(f"{2 * INDENT}{item['label']:<{widest}}  {item['value']}")
    _print_text(f"Cost: {finding['cost']['text']}.")
    _print_text(f"Remedy: {finding['remedy']}")
    if finding["setting"]:
        typer.echo(2 * INDENT + typer.style(finding["setting"], bold=True))
    typer.echo("")


def _print_text(text: str) -> None:
    import shutil
    import textwrap

    width = min(WIDEST, shutil.get_terminal_size().columns)
    typer.echo(textwrap.fill(text, width=width, initial_indent=INDENT, subsequent_indent=INDENT))
